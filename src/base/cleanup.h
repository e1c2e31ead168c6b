/* Cleanup attributes: what a function takes, it gives back on every way out. */
#pragma once

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static inline void varve_cleanup_free_p(void *p)
{
	void *v;

	__builtin_memcpy(&v, p, sizeof(v));
	free(v);
}

static inline void varve_cleanup_close_p(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void varve_cleanup_closedir_p(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

#define cleanup_free __attribute__((cleanup(varve_cleanup_free_p)))
#define cleanup_close __attribute__((cleanup(varve_cleanup_close_p)))
#define cleanup_closedir __attribute__((cleanup(varve_cleanup_closedir_p)))

/* Takes the value out of a variable with a cleanup, so that it survives the scope. */
#define steal_fd(fdp)                                                                              \
	({                                                                                         \
		int *steal_p_ = (fdp);                                                             \
		int steal_fd_ = *steal_p_;                                                         \
		*steal_p_ = -1;                                                                    \
		steal_fd_;                                                                         \
	})
#define steal_ptr(pp)                                                                              \
	({                                                                                         \
		__typeof__(*(pp)) *steal_p_ = (pp);                                                \
		__typeof__(*(pp)) steal_v_ = *steal_p_;                                            \
		*steal_p_ = NULL;                                                                  \
		steal_v_;                                                                          \
	})

#define varve_must_check __attribute__((warn_unused_result))
#define varve_printf(a, b) __attribute__((format(printf, a, b)))
