"""The list of what reads measurement tables; read at run time too, by ``__init__.py``."""

from perfmodel.measurements.description import Erratum as Erratum
from perfmodel.measurements.description import Hardware as Hardware
from perfmodel.measurements.reading import from_frame as from_frame
from perfmodel.measurements.reading import load as load
from perfmodel.measurements.reading import names as names
from perfmodel.measurements.scaling_tables import ScalingTable as ScalingTable
from perfmodel.measurements.scaling_tables import load_scaling as load_scaling
from perfmodel.measurements.scaling_tables import scaling_names as scaling_names
from perfmodel.measurements.table import Evidence as Evidence
from perfmodel.measurements.table import FeedItem as FeedItem
from perfmodel.measurements.table import MeasuredRow as MeasuredRow
from perfmodel.measurements.table import MeasurementTable as MeasurementTable
from perfmodel.measurements.table import Run as Run
