/*
 * Locks. The order in which they may be taken, outermost first (a lock may be skipped, never taken
 * against this order); each name's comment beside its field says what it guards:
 *
 *   handle.lock -> store.mutate -> store.ranges -> store.trash -> bucket.gate -> file.lock -> bucket.shelf -> store.ns
 *   -> leaves: mark, inos, audit, tombs, cache, control, loop, workers
 *
 * store.ns is never held across I/O. docs/architecture.md has the reasons.
 */
#pragma once

#include <pthread.h>

static inline pthread_mutex_t *varve_lock(pthread_mutex_t *m)
{
	(void)pthread_mutex_lock(m);
	return m;
}

static inline void varve_unlock_p(pthread_mutex_t **m)
{
	if (*m)
		(void)pthread_mutex_unlock(*m);
}

/* For a lock that is held for less than a microsecond at a time, by threads on different processors: who finds it taken
 * looks again a few times before it sleeps. */
static inline void varve_mutex_init_brief(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;

	(void)pthread_mutexattr_init(&a);
	(void)pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
	(void)pthread_mutex_init(m, &a);
	(void)pthread_mutexattr_destroy(&a);
}

#define VARVE_GUARD_NAME2(line) guard_##line
#define VARVE_GUARD_NAME(line) VARVE_GUARD_NAME2(line)

/* Holds the mutex to the end of the enclosing block. */
#define guard(m)                                                                                   \
	pthread_mutex_t *VARVE_GUARD_NAME(__LINE__)                                                \
		__attribute__((cleanup(varve_unlock_p), unused)) = varve_lock(m)
