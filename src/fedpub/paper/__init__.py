"""The paper's tables and figures: one recipe each, with the published numbers for comparison."""
