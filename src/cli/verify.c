#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/units.h"
#include "store/verify.h"

#define REDRAW_NS INT64_C(100000000)
#define BAR_LEAST 8 /* columns; on a narrower terminal the numbers stand alone */

struct checking {
	bool terminal;
	bool drawn; /* a bar stands on the terminal's last line */
	int64_t started_ns, drawn_ns;
};

/* -- the bar, on stderr -- */

static int terminal_width(void)
{
	struct winsize w = {0};

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 ? w.ws_col : 80;
}

static void wipe_bar(struct checking *c)
{
	if (!c->drawn)
		return;
	(void)fputs("\r\033[K", stderr);
	(void)fflush(stderr);
	c->drawn = false;
}

/* What is left at the pace so far; empty while that tells little. */
static void format_left(const struct checking *c, double share, char *buf, size_t size)
{
	int64_t spent_ns = varve_clock_monotonic_ns() - c->started_ns;
	char text[32];

	buf[0] = '\0';
	if (spent_ns < 2 * REDRAW_NS || share <= 0 || share >= 1)
		return;
	varve_duration_format((int64_t)((double)spent_ns / share * (1 - share)), text,
			      sizeof(text));
	(void)snprintf(buf, size, ", %s left", text);
}

static void draw_bar(struct checking *c, uint64_t done, uint64_t total)
{
	double share = total ? (double)done / (double)total : 1;
	char of[32], at[32], left[48], words[160], bar[64];
	int room, full;

	if (share > 1)
		share = 1;
	varve_size_format(done, at, sizeof(at));
	varve_size_format(total, of, sizeof(of));
	format_left(c, share, left, sizeof(left));
	(void)snprintf(words, sizeof(words), "%3d %%  %s of %s%s", (int)(share * 100), at, of,
		       left);
	room = terminal_width() - (int)strlen(words) - 5;
	if (room > (int)sizeof(bar) - 1)
		room = (int)sizeof(bar) - 1;
	if (room < BAR_LEAST) {
		(void)fprintf(stderr, "\r%.*s\033[K", terminal_width() - 1, words);
	} else {
		full = (int)(share * room);
		memset(bar, '#', (size_t)full);
		memset(bar + full, '.', (size_t)(room - full));
		bar[room] = '\0';
		(void)fprintf(stderr, "\r[%s] %s\033[K", bar, words);
	}
	(void)fflush(stderr);
	c->drawn = true;
	c->drawn_ns = varve_clock_monotonic_ns();
}

static int progress(void *ctx, uint64_t done, uint64_t total)
{
	struct checking *c = ctx;

	if (c->terminal && (done == total || varve_clock_monotonic_ns() - c->drawn_ns >= REDRAW_NS))
		draw_bar(c, done, total);
	return 0;
}

/* -- findings, on stdout -- */

/* Names may hold anything; a report goes to mails and logs as well as to terminals. */
static void print_clean(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		(void)putchar((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i]);
}

/* "2026-11-28/default/0.tar.zst" -> "2026-11-28" */
static void print_bucket(const char *segment)
{
	print_clean(segment, strcspn(segment, "/"));
}

static void report(void *ctx, const struct varve_verify_finding *f)
{
	struct checking *c = ctx;

	wipe_bar(c);
	(void)fputs(f->kind == VARVE_VERIFY_NOTE ? "note: " : "damaged: ", stdout);
	if (f->path) {
		print_bucket(f->segment);
		(void)putchar('/');
		print_clean(f->path, f->path_len);
	} else {
		print_clean(f->segment, strlen(f->segment));
	}
	if (f->kind == VARVE_VERIFY_FILE && f->length)
		(void)printf(", bytes %" PRIu64 " to %" PRIu64, f->offset,
			     f->offset + f->length - 1);
	(void)fputs(": ", stdout);
	print_clean(f->what, strlen(f->what));
	if (f->path) {
		(void)fputs(" (in ", stdout);
		print_clean(f->segment, strlen(f->segment));
		(void)putchar(')');
	}
	(void)putchar('\n');
	(void)fflush(stdout);
}

static const char *plural(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

static void print_summary(const struct varve_verify_counts *n)
{
	char content[32], disk[32];

	varve_size_format(n->content_bytes, content, sizeof(content));
	varve_size_format(n->segment_bytes, disk, sizeof(disk));
	(void)printf("%" PRIu64 " %s with %" PRIu64 " %s looked at: %s, %s on disk: ", n->segments,
		     plural(n->segments, "segment", "segments"), n->files,
		     plural(n->files, "file", "files"), content, disk);
	if (varve_verify_clean(n))
		(void)printf("all is well\n");
	else
		(void)printf("DAMAGED: %" PRIu64 " %s, %" PRIu64 " %s, %" PRIu64 " %s, %" PRIu64
			     " %s%s\n",
			     n->bad_segments, plural(n->bad_segments, "segment", "segments"),
			     n->bad_files, plural(n->bad_files, "file", "files"), n->bad_frames,
			     plural(n->bad_frames, "frame", "frames"), n->bad_headers,
			     plural(n->bad_headers, "header", "headers"),
			     n->bad_records ? ", the range record" : "");
}

static int run(struct varve_cli *cli)
{
	cleanup_close int fd = open(cli->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct checking c = {.terminal = isatty(STDERR_FILENO) && !varve_cli_get(cli, "quiet"),
			     .started_ns = varve_clock_monotonic_ns()};
	struct varve_verify_job job = {
		.progress = progress,
		.report = report,
		.ctx = &c,
		.buckets = (const char *const *)cli->operands,
		.n_buckets = (size_t)cli->n_operands,
	};
	struct varve_verify_counts counts = {0};
	struct varve_err err = {""};
	int r;

	if (fd < 0)
		return varve_cli_fail(cli, "open the store '%s': %s", cli->store, strerror(errno));
	r = varve_verify_store(fd, &job, &counts, &err);
	wipe_bar(&c);
	if (r < 0)
		return varve_cli_fail(cli, "%s", err.msg[0] ? err.msg : strerror(-r));
	if (!varve_cli_get(cli, "quiet"))
		print_summary(&counts);
	return varve_cli_finish(cli, varve_verify_clean(&counts) ? 0 : VARVE_EXIT_FAILED);
}

const struct varve_cli_command varve_cli_verify = {
	.name = "verify",
	.operands = "[BUCKET...]",
	.max_operands = -1,
	.summary = "check every digest of every sealed frame and file",
	.details = "Reads all that is sealed (or only the buckets that are named) from\n"
		   "the disk and compares it with the digests made while sealing. Each\n"
		   "fault is a line: bucket, file and the bytes that are lost. Without\n"
		   "BUCKET the store's range record, meta/ranges, is checked as well.\n"
		   "Changes nothing; the store may be mounted or not. Exit status 1 when\n"
		   "something is damaged.\n",
	.example = "varve verify /var/lib/varve\n"
		   "varve verify --quiet /mnt/varve 2026-11-28 || mail -s 'damaged' root\n",
	.options = {{"quiet", 'q', NULL, "print faults only: no progress, no summary"}},
	.run = run,
};
