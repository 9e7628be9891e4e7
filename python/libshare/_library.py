# SPDX-License-Identifier: MIT
"""What to say when the extension does not fit the library that the process has."""

import ctypes
import importlib.metadata
import os


def explain(error: ImportError) -> ImportError:
    """The error with both versions, if the process had another libshare.so.0 than the package's."""
    try:
        library = ctypes.CDLL("libshare.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        library.share_version.restype = ctypes.c_char_p
        there = library.share_version().decode()
        ours = importlib.metadata.version("libshare")
    except (OSError, AttributeError, importlib.metadata.PackageNotFoundError):
        return error
    return ImportError(
        f"the Python package libshare {ours} needs the library libshare.so.0 of the same version, and this "
        f"process has loaded version {there} of it ({error})", name=error.name, path=error.path)
