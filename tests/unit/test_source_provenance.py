"""Sources say how sure they are: in a structured field, or by the words that files used before there was one."""

import pytest
from pydantic import ValidationError

from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_library
from perfmodel.hardware.source import PROVENANCES, Source, numbers_in


def source(**stated: object) -> Source:
    return Source.model_validate({"fields": ["gemm"], "title": "a paper"} | stated)


@pytest.mark.parametrize(
    ("stated", "kind"),
    [
        ({"title": "estimate", "note": "from memory"}, "estimate"),
        ({"title": "calculation"}, "calculation"),
        ({"title": "own measurement, 2026-11-21", "note": "one thread"}, "measured"),
        ({"note": "Fitted by a script on 320 rows"}, "fitted"),
        ({"note": "page 3, from memory"}, "memory"),
        ({"note": "the scalability law fitted to shared-memory programs"}, "datasheet"),
        ({"provenance": "measured", "note": "page 3, from memory"}, "measured"),
    ],
)
def test_provenance_by_words_unless_stated(stated, kind):
    assert source(**stated).kind == kind


def test_what_is_remembered_or_estimated_is_not_verified():
    assert not source(provenance="memory").is_verified
    assert not source(title="estimate", note="half of it").is_verified
    assert source().is_verified
    assert not source(verified=False).is_verified


FITTED = {"provenance": "fitted", "table": "Baidu DeepBench", "rows": 272, "residual_percent": 12.0}


def test_a_fit_names_table_rows_and_residual():
    assert source(**FITTED).residual_percent == 12.0


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        ({"provenance": "guess"}, "provenance"),
        ({"provenance": "fitted", "table": "Baidu DeepBench"}, "rows, residual_percent"),
        ({"provenance": "datasheet", "rows": 12}, 'is allowed only with provenance "fitted" or "measured"'),
        ({"residual_percent": 12.0}, 'is allowed only with provenance "fitted" or "measured"'),
        ({"title": "estimate", "note": "half", "provenance": "datasheet"}, "as the title says"),
        ({"provenance": "memory", "verified": True}, "must be false"),
        (FITTED | {"residual_percent": -1.0}, "residual_percent"),
        (FITTED | {"rows": 0}, "rows"),
    ],
)
def test_a_source_that_contradicts_itself_is_a_fault(stated, fault):
    with pytest.raises(ValidationError, match=fault):
        source(**stated)


def test_the_source_that_names_a_number_most_closely_counts():
    library = load_library("cublas_7_5")
    assert library.source_of("architecture.default.gemm").kind == "fitted"
    assert library.source_of("architecture.kepler.gemm").kind == "estimate"
    assert library.source_of("architecture.kepler.nothing") is None


@pytest.mark.parametrize("folder", spec_files.NOUN_BY_FOLDER)
def test_every_number_of_every_shipped_file_has_a_provenance(folder):
    for path in (spec_files.shipped_folder() / folder).glob("*.toml"):
        raw = spec_files.tables_of(path, heirs_of=folder if folder == "frameworks" else "")
        sources = [Source.model_validate(entry) for entry in raw["source"]]
        described = {"schema_version", "source", "constant"}
        for name, _ in numbers_in({key: entry for key, entry in raw.items() if key not in described}):
            covering = [one for one in sources if any(f"{name}.".startswith(f"{field}.") for field in one.fields)]
            assert covering, f"{path.name}: {name}"
            assert all(one.kind in PROVENANCES for one in covering)
            if folder != "calibrations":  # those that fits wrote before they said it
                assert all(one.provenance is not None for one in covering), f"{path.name}: {name}"
