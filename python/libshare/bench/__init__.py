# SPDX-License-Identifier: MIT
"""What sharing memory from Python costs, beside what the same costs otherwise, in the same run:
``python -m libshare.bench``. See docs/python.md."""
