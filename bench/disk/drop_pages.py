#!/usr/bin/env python3
"""Removes the files below a folder from the page cache: drop_pages.py FOLDER"""
import os
import sys

os.sync()
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        file = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
