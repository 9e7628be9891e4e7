#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Renders picture.ppm, the picture that the demo works on.

The picture is ours: three balls on a checkered floor, ray-traced by this script, with the noise of
a cheap camera, so that no two rows are alike. Needs nothing but Python, and makes the same bytes
each time:

    ./make_picture.py > picture.ppm
"""
import math
import random
import sys

WIDTH, HEIGHT = 320, 240
EYE = (0.0, 1.2, -4.0)
LIGHT = (-0.51, 0.77, -0.38)  # a direction, of length 1
BALLS = [  # centre, radius, colour, share of light that is mirrored
    ((-1.3, 0.7, 0.6), 0.7, (0.90, 0.30, 0.25), 0.25),
    ((0.3, 1.0, 1.4), 1.0, (0.25, 0.45, 0.85), 0.45),
    ((1.2, 0.45, -0.3), 0.45, (0.95, 0.80, 0.30), 0.20),
]


def dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def along(a, b, t):
    return (a[0] + b[0] * t, a[1] + b[1] * t, a[2] + b[2] * t)


def unit(a):
    return along((0, 0, 0), a, 1 / math.sqrt(dot(a, a)))


def hit(origin, direction):
    """The nearest ball in this direction, or None."""
    nearest = None
    for ball in BALLS:
        to = along(origin, ball[0], -1)
        b = dot(to, direction)
        root = b * b - dot(to, to) + ball[1] * ball[1]
        if root > 0:
            t = -b - math.sqrt(root)
            if t > 1e-4 and (nearest is None or t < nearest[0]):
                nearest = (t, ball)
    return nearest


def sky(direction):
    t = max(0.0, direction[1])
    return (0.85 - 0.5 * t, 0.90 - 0.35 * t, 0.98 - 0.1 * t)


def colour(origin, direction, depth=0):
    found = hit(origin, direction)
    if found:
        t, (centre, _, paint, mirror) = found
        point = along(origin, direction, t)
        normal = unit(along(point, centre, -1))
    elif direction[1] < -1e-3:
        point = along(origin, direction, -origin[1] / direction[1])
        normal, mirror = (0.0, 1.0, 0.0), 0.1
        dark = (math.floor(point[0]) + math.floor(point[2])) % 2
        paint = (0.25, 0.28, 0.30) if dark else (0.85, 0.83, 0.78)
    else:
        return sky(direction)
    light = 0.25
    if not hit(point, LIGHT):
        light += 0.75 * max(0.0, dot(normal, LIGHT))
    seen = along((0, 0, 0), paint, light)
    if depth < 3:
        back = colour(point, along(direction, normal, -2 * dot(direction, normal)), depth + 1)
        seen = along(along((0, 0, 0), seen, 1 - mirror), back, mirror)
    return seen


def main():
    noise = random.Random(1)
    out = bytearray(b"P6\n# ours: see make_picture.py\n%d %d\n255\n" % (WIDTH, HEIGHT))
    for y in range(HEIGHT):
        for x in range(WIDTH):
            ray = unit(((x - WIDTH / 2) / HEIGHT, 0.42 - y / HEIGHT, 1.0))
            for value in colour(EYE, ray):
                value = 255 * min(1.0, value) ** 0.8 + noise.gauss(0, 3)
                out.append(max(0, min(255, int(value))))
    sys.stdout.buffer.write(out)


main()
