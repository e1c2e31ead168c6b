/* A table for people: columns as wide as what is in them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

#define VARVE_TABLE_COLUMNS_MAX 12

struct varve_table {
	unsigned n_columns;
	const char *titles[VARVE_TABLE_COLUMNS_MAX];
	bool right[VARVE_TABLE_COLUMNS_MAX]; /* numbers: aligned to the right */
	char **cells; /* n_columns a row, malloc'ed; all through the functions below */
	size_t n_cells, size;
	bool failed; /* no memory */
};

/* Adds the next cell, row by row. */
void varve_table_add(struct varve_table *t, const char *fmt, ...) varve_printf(2, 3);
/* Prints titles and rows to stdout, and frees the cells. */
void varve_table_print(struct varve_table *t);
