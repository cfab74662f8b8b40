"""How notebooks show objects: HTML for arrays and trees of arrays, and live displays.

Classes define a method `_repr_html_`, which imports the part of this package that it needs when a
notebook calls it. The HTML is self-contained and uses the colors of the page around it. All text is
escaped, and if something is left out, a line shows how much. This package may import the engine. It
imports IPython only when it draws a display.
"""
