"""Data sets: what is shipped, what Python makes, what is refused."""

import pytest

import perfmodel as pm
from perfmodel.errors import SpecError, UnknownNameError
from perfmodel.hardware import spec_files

MINE = {
    "name": "mine",
    "example_count": 1000,
    "encoded_bytes_per_example": 5e4,
    "decoded_shape": (64, 64, 3),
    "format": "binary",
}


def test_the_image_of_the_survey():
    images = pm.load_dataset("greyscale_512")
    assert images.element_count == 512 * 512 == 262_144
    assert images.encoded_bytes_per_example == images.decoded_bytes_per_example == 262_144
    # as fp32 33.29 us at 31.5 GB/s; a drive of 3.5 GB/s feeds 13,351 of them
    assert 4 * images.element_count / 31.5e9 == pytest.approx(33.29e-6, rel=1e-4)
    assert 3.5e9 / images.encoded_bytes_per_example == pytest.approx(13_351, abs=0.5)


def test_imagenet_by_hand():
    jpeg, raw = pm.load_dataset("imagenet_jpeg"), pm.load_dataset("imagenet_raw")
    assert jpeg.example_count == raw.example_count == 1_281_167
    assert jpeg.encoded_bytes == 1_281_167 * 110_000
    assert jpeg.decoded_bytes_per_example == raw.encoded_bytes_per_example == 224 * 224 * 3 == 150_528
    assert (jpeg.decode_rate_per_core, raw.decode_rate_per_core) == (100, None)
    assert jpeg.file.source_of("decode_rate_per_core").kind == "estimate"


def test_the_small_ones():
    assert pm.load_dataset("mnist").encoded_bytes == 60_000 * 784
    assert pm.load_dataset("cifar10").encoded_bytes == 5 * 30_730_000  # five files of the binary version
    ptb = pm.load_dataset("ptb")
    assert ptb.encoded_bytes == pytest.approx(5_101_618, rel=1e-4)
    assert ptb.decoded_bytes_per_example == 4


def test_every_shipped_one_describes_itself_and_equals_one_made_in_python():
    for name in spec_files.names("datasets"):
        loaded = pm.load_dataset(name)
        assert f"{loaded.example_count:,} examples" in loaded.describe()
        stated = {field: getattr(loaded, field) for field in loaded.__dataclass_fields__ if field != "file"}
        assert pm.Dataset(**stated) == loaded


def test_one_made_in_python():
    mine = pm.Dataset(**MINE | {"format": "png", "decode_rate_per_core": 250})
    assert mine.encoded_bytes == 5e7
    assert mine.decoded_bytes_per_example == 12_288
    assert mine.file is None
    assert "decoded at 250/s per core" in mine.describe()
    assert pm.Dataset(**MINE | {"decoded_shape": [64, 64, 3]}) == pm.Dataset(**MINE)
    assert hash(mine) != hash(pm.Dataset(**MINE))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"example_count": 0}, "Dataset 'mine': 1 fault: example_count: value 0: must be greater than or equal to 1"),
        ({"example_count": -5}, "example_count: value -5"),
        ({"example_count": 10.5}, "example_count: value 10.5"),
        ({"example_count": True}, "example_count: value True"),
        ({"encoded_bytes_per_example": 0}, "encoded_bytes_per_example: value 0: must be greater than 0"),
        ({"encoded_bytes_per_example": -1.0}, "encoded_bytes_per_example: value -1.0"),
        ({"encoded_bytes_per_example": float("nan")}, "encoded_bytes_per_example: value nan"),
        ({"encoded_bytes_per_example": "110 KB"}, "encoded_bytes_per_example: value '110 KB'"),
        ({"decoded_shape": (224, 0, 3)}, r"decoded_shape\[1\]: value 0"),
        ({"decoded_shape": ()}, r"decoded_shape: value \(\)"),
        ({"format": "raw"}, "encoded_bytes_per_example: value 50000.0: must be the 12,288 B of a decoded example"),
        ({"format": "raw", "encoded_bytes_per_example": 12_288, "decode_rate_per_core": 9}, "must not be given: raw"),
        ({"format": "png"}, "decode_rate_per_core: value None: is needed: png must be decoded"),
        ({"format": "jpg"}, r"format: value 'jpg': must be one of raw, .* \(nearest: jpeg\)"),
        ({"decoded_dtype": "float"}, "decoded_dtype: value 'float': must be one of fp64, fp32"),
        ({"decode_rate_per_core": 0}, "decode_rate_per_core: value 0"),
        ({"decode_rate_per_core": -100}, "decode_rate_per_core: value -100"),
        ({"name": ""}, "name: value ''"),
        ({"format": "JPEG file"}, "format: value 'JPEG file'"),
        ({"example_count": 0, "encoded_bytes_per_example": 0}, "2 faults"),
    ],
)
def test_what_cannot_be_is_refused(given, message):
    with pytest.raises(SpecError, match=message):
        pm.Dataset(**MINE | given)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("encoded_bytes_per_example = 110000", "encoded_bytes_per_example = 0", "encoded_bytes_per_example: value 0"),
        ("example_count = 1281167", "example_count = 0", "example_count: value 0"),
        ("decode_rate_per_core = 100", "decode_rates_per_core = 100", "nearest key: decode_rate_per_core"),
        ('"uint8"', '"uint9"', "decoded_dtype: value 'uint9'"),
    ],
)
def test_wrong_files_say_what_is_wrong(tmp_path, old, new, message):
    text = spec_files.find("datasets", "imagenet_jpeg").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError, match=message):
        pm.load_dataset(path)


def test_names():
    with pytest.raises(UnknownNameError, match="unknown data set 'imagenet'"):
        pm.load_dataset("imagenet")
