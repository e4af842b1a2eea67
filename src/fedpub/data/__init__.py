"""From a named or an own graph to the clients of an experiment."""
