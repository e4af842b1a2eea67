"""The paper's tables and figures: one recipe each, and the published numbers to set beside ours."""
