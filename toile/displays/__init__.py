"""What objects look like in notebooks: pieces of HTML, arrays and trees of arrays, live displays.

Classes have a method `_repr_html_` that loads its part of this package when a notebook calls it.
HTML is self-contained, takes its colors from the page around it, escapes all text, and says what it
leaves out. May import the engine; IPython is imported where a display is drawn.
"""
