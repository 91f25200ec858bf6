"""Elements of HTML pages that hold all that they show: text, pictures, line charts."""
