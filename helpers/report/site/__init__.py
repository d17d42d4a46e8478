"""All nights of a history as a folder of static pages."""
