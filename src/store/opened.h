/*
 * Parts that are there only because their stream was opened. The kernel can append by itself only to a part that
 * has its name: should the daemon die, nobody else would know of it. So an open for appending makes the
 * part; but a stream to which nothing was written has no file in the bucket. Such a part is marked
 * (VARVE_XATTR_OPENED), and so are the folders that were made only for such parts: the part counts once it holds a
 * byte, a folder once something in it does, or when something is done to them that means them: then the mark goes.
 * Private to store/.
 */
#pragma once

#include "store/core.h"

/* Marks a part or folder; whether it is marked. 0 or -errno. No lock. */
int varve_opened_note(int fd) varve_must_check;
bool varve_opened_is_noted(int fd);

/* f's part counts from now on, also if it holds nothing, and so do its folders; nothing if they do already. mutate
 * held. 0 or -errno. */
int varve_opened_mean(struct varve_store *s, struct varve_node *f) varve_must_check;

/* The same, if it holds a byte: before that is taken away, or its name is. mutate held. 0 or -errno. */
int varve_opened_mean_used(struct varve_store *s, struct varve_node *f) varve_must_check;

/* Whether anything below a DDIR is there for those who look; ns held. */
bool varve_opened_holds(const struct varve_node *dir);

/* Whether an unsealed bucket that is not current is there for those who look; ns held. */
bool varve_opened_bucket(const struct varve_bucket *b);
