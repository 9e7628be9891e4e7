/* SPDX-License-Identifier: MIT */

/*
 * In place of libgit2, of which Criterion wants that it shows how two values differ. Criterion runs
 * each test in a process of its own, and each would load libgit2 with the 17 libraries of its own,
 * and begin it: as Debian builds it, it reads the certificates of all authorities then. So the real
 * one, SHARE_LIBGIT2, is loaded when a test has failed, and something is to be shown.
 */

#include <dlfcn.h>
#include <git2.h>

int git_libgit2_init(void)
{
	return 1;
}

int git_libgit2_shutdown(void)
{
	return 0;
}

int git_diff_buffers(const void *old, size_t old_length, const char *old_path, const void *new,
		     size_t new_length, const char *new_path, const git_diff_options *options,
		     git_diff_file_cb on_file, git_diff_binary_cb on_binary,
		     git_diff_hunk_cb on_hunk, git_diff_line_cb on_line, void *payload)
{
	void *git = dlopen(SHARE_LIBGIT2, RTLD_NOW | RTLD_LOCAL);
	__typeof__(git_libgit2_init) *init;
	__typeof__(git_libgit2_shutdown) *shutdown;
	__typeof__(git_diff_buffers) *diff;
	int result;

	if (!git) {
		return -1;
	}
	*(void **)&init = dlsym(git, "git_libgit2_init");
	*(void **)&shutdown = dlsym(git, "git_libgit2_shutdown");
	*(void **)&diff = dlsym(git, "git_diff_buffers");
	if (!init || !shutdown || !diff || init() < 0) {
		return -1;
	}
	result = diff(old, old_length, old_path, new, new_length, new_path, options, on_file,
		      on_binary, on_hunk, on_line, payload);
	shutdown();
	return result;
}
