"""Your own graph: from CSV and Parquet tables, PyG and NetworkX."""

from fedpub.data.tables.building import Imported
from fedpub.data.tables.importing import from_tables
from fedpub.data.tables.objects import from_networkx, from_pyg

__all__ = ["Imported", "from_networkx", "from_pyg", "from_tables"]
