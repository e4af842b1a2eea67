"""Training across machines: Flower carries the messages between a coordinator and its sites."""
