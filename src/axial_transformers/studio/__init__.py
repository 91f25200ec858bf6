"""Studio: a page in the browser that shows a model. Only `page.py` imports Gradio."""
