"""A graph of one's own: from CSV and Parquet tables, PyG and networkx."""

from fedpub.data.tables.importing import Imported, from_networkx, from_pyg, from_tables

__all__ = ["Imported", "from_networkx", "from_pyg", "from_tables"]
