from toile.exporting.numpy_files import to_numpy as to_numpy
