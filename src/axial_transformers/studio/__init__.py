"""Studio: a page in the browser on which a model is looked at. Only `page.py` imports Gradio."""
