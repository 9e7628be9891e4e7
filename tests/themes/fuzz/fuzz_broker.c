/* SPDX-License-Identifier: MIT */

/*
 * The broker against its clients. The input is what three clients do (play.c). Whatever they do,
 * the broker answers with packets that make sense, lets nobody have what is not for that user, and
 * when they all are dead nothing is left.
 */

#include "tests/themes/fuzz/fuzz.h"
#include "tests/themes/fuzz/play.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	play_init();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	int before = lowest_free_descriptor();

	expect(play_start(NULL) == 0);
	play(&in);
	play_hang_up();
	play_end();
	play_forget();
	clock_reset();
	expect(lowest_free_descriptor() == before);
	return 0;
}
