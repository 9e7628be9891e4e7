#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What README.md shows of C compiles, word for word, and its first piece of code does what it says
# when it is run. Each block becomes the body of a function. A block of "```cuda" may launch kernels,
# which is written as the calls that a launch amounts to, as there may be no compiler for it.
#
# What a reader takes for given is declared here: the functions of his own (fill() and so on), his
# stream, and the handles that an earlier block has made.
#
# usage: readme_test.sh BUILD_DIRECTORY [ROOT]; CC names the compiler

set -euo pipefail

build=$(cd "${1:?usage: readme_test.sh BUILD_DIRECTORY [ROOT]}" && pwd)
root=$(cd "${2:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

cat >given.h <<'END'
#include <share/channel.h>
#include <share/service.h>
#include <share/share.h>

static share_client *c;
static share_pool *p;
static share_pool_options options;
static share_buffer *b, *answer;
static share_channel *ch;
static share_service *s;
static share_message m;
static void *stream;
static uint64_t size, n;
static int r;
static int meta, question;

void fill(void *memory, uint64_t bytes);
void work_on(); /* with what there is in each place */
void use(share_buffer *buffer, const void *data);
void infer(const void *in, const void *data, void *out, void *on);

static int blocks, threads;
void launch(int grid, int block, uint64_t shared, void *on);
void kernel(void *memory, uint64_t elements);
END

# wrap BLOCK: that block of README, in a function, with the lines it has there
wrap()
{
	echo '#include "given.h"'
	echo "void block_$1(void);"
	echo "void block_$1(void) {"
	awk -v wanted="$1" '
		/^```/ {
			on = !on && /^```(c|cuda)$/ && ++block == wanted
			if (on)
				print "#line", NR + 1, "\"README.md\""
			next
		}
		on' "$root/README.md" | sed -E 's/([a-z_]+)<<<(.*)>>>\(/launch(\2), \1(/'
	echo "}"
}

compile()
{
	"${CC:-cc}" -std=c17 -Wall -Werror -Wno-unused -Wno-strict-prototypes -I "$root/include" \
		-c "$1.c" -o "$1.o"
}

blocks=$(grep -cE '^```(c|cuda)$' "$root/README.md")
((blocks >= 3)) || { echo "README.md has $blocks blocks of C, which cannot be all" && exit 1; }
failed=0
for ((i = 1; i <= blocks; i++)); do
	wrap $i >block_$i.c
	compile block_$i || failed=1
done
((failed == 0)) || exit 1

# as would be noticed: a function that is not there, and one that is called with too little
for wrong in 's/share_alloc(/share_allocate(/' 's/share_release(b, NULL)/share_release(b)/'; do
	sed "$wrong" block_1.c >wrong.c
	if cmp -s block_1.c wrong.c || compile wrong 2>/dev/null; then
		echo "$wrong in the first block is not noticed"
		exit 1
	fi
done

cat >main.c <<'END'
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void block_1(void);
void fill(void *memory, uint64_t bytes);
void work_on(void *memory, uint64_t bytes);

static char written[1 << 20];
static int seen;

void fill(void *memory, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		written[i] = (char)(i * 31 + i / 4096);
	memcpy(memory, written, bytes);
}

void work_on(void *memory, uint64_t bytes)
{
	seen += bytes == sizeof(written) && memcmp(memory, written, bytes) == 0;
}

int main(void)
{
	block_1();
	printf("seen %d\n", seen);
	return seen != 1;
}
END
"${CC:-cc}" -Wall -Werror main.c block_1.o -o first -L "$build/lib" -lshare
export LD_LIBRARY_PATH=$build/lib PATH=$build/bin:$PATH
unset SHARE_SOCKET SHARE_BROKER
share-run -- ./first || { echo "the first block of README.md does not work" && exit 1; }
echo "$blocks blocks compile, and the first one works"
