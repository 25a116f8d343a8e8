/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The functions of libc below this library, which stands in front of them with functions of the same name. */
#ifndef PUNCTUAL_PRELOAD_LIBC_H
#define PUNCTUAL_PRELOAD_LIBC_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

static inline void *libc_function(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function)
		abort();
	return function;
}

/* Libc's function of that name. The first lookup is kept; racing lookups find the same address. */
#define REAL(name) \
	({ \
		static _Atomic(__typeof__(&name)) known; \
		__typeof__(&name) function = atomic_load(&known); \
		if (!function) \
			atomic_store(&known, function = libc_function(#name)); \
		function; \
	})

#endif
