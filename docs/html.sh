#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Makes HTML of manual pages; the overview, libshare(7), is the index.
#
# usage: html.sh MANDOC OUTPUT-FOLDER (FOLDER-OF-PAGES | PAGE)...
set -eu

mandoc=$1
output=$2
shift 2
rm -rf "$output"
mkdir -p "$output"

for place; do
	[ ! -d "$place" ] || set -- "$@" "$place"/*
done
cd "$output"
for page; do
	[ -d "$page" ] || [ -L "$page" ] || "$mandoc" -T html -O man=%N.%S.html "$page" >"${page##*/}.html"
done
# Pages of others, such as fork(2), are not here.
sed -n 's/.*<a class="Xr" href="\([^"]*\)".*/\1/p' ./*.html | sort -u | while read -r page; do
	[ -e "$page" ] || sed -i "s|<a class=\"Xr\" href=\"$page\">\([^<]*\)</a>|\1|g" ./*.html
done
ln -s libshare.7.html index.html
