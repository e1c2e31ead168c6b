#include "cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GAP 2

void varve_table_add(struct varve_table *t, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	if (t->n_cells == t->size) {
		size_t size = t->size ? 2 * t->size : 64;
		char **cells = realloc(t->cells, size * sizeof(*cells));

		if (!cells) {
			t->failed = true;
			return;
		}
		t->cells = cells;
		t->size = size;
	}
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
		t->failed = true;
	}
	va_end(ap);
	if (text)
		t->cells[t->n_cells++] = text;
}

/* Blanks at the end of a line are left away: `pad` grows until something is to be printed. */
static void print_row(const struct varve_table *t, const size_t *width, const char *const *cells)
{
	size_t pad = 0;

	for (unsigned c = 0; c < t->n_columns; c++) {
		size_t len = strlen(cells[c]);
		size_t before = t->right[c] ? width[c] - len : 0;

		pad += before;
		if (len) {
			(void)printf("%*s%s", (int)pad, "", cells[c]);
			pad = 0;
		}
		pad += width[c] - before - len + GAP;
	}
	(void)putchar('\n');
}

void varve_table_print(struct varve_table *t)
{
	size_t width[VARVE_TABLE_COLUMNS_MAX] = {0};
	size_t rows = t->n_cells / t->n_columns;

	for (unsigned c = 0; c < t->n_columns; c++) {
		width[c] = strlen(t->titles[c]);
		for (size_t r = 0; r < rows; r++) {
			size_t n = strlen(t->cells[r * t->n_columns + c]);

			if (n > width[c])
				width[c] = n;
		}
	}
	print_row(t, width, t->titles);
	for (size_t r = 0; r < rows; r++)
		print_row(t, width, (const char *const *)t->cells + r * t->n_columns);
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	t->cells = NULL;
	t->n_cells = t->size = 0;
}
