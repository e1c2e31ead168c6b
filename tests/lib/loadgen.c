/*
 * Writers at full speed that know what they wrote, and the check that nothing of it was harmed.
 *
 *	loadgen write [-s SECONDS] [-p MICROSECONDS] [-l LETTER] [-f NUMBER] [-2] [-n] FILE...
 *
 * One thread a FILE (which may be named more than once), on one held descriptor (O_WRONLY|O_APPEND).
 * Each writer's lines bear a letter of its own (from LETTER or 'a' on), their number (from NUMBER on), the wall clock's time in
 * ns and a checksum. Ends after SECONDS or upon SIGTERM, at a line's end. -p: a pause after each
 * write(2). -2: each line by two write(2) calls. -n: the lines end in '.' instead of a newline. Prints
 * "LETTER NEXT ERRNO" a writer: the number of the line after the last one that was acknowledged whole,
 * and what ended it early (0: nothing). Last, "late MS": by how much a thread that did nothing but sleep
 * until each full second woke up too late, at the worst: what the machine itself adds.
 *
 *	loadgen check [-n] [-c] [-t MILLISECONDS] LETTER=FIRST-NEXT... -- START:END:FILE...
 *
 * FILEs are the buckets' pieces, oldest first, START and END their windows in ns. Each writer's lines
 * FIRST to NEXT - 1 must be there once, whole, in order, and nothing else; no piece may end inside a
 * line (-c: it may); with -t each line must be in a window that holds its time within so many ms.
 * NEXT may be "?": whatever is there. Prints "lines N pieces N early MS late MS", then "LETTER NEXT" a
 * writer; exits 1 and says where if it is not so.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WRITERS_MAX 26
#define LINE_MIN 48
#define LINE_SPREAD 33
#define LINE_SIZE_MAX (LINE_MIN + LINE_SPREAD)
#define NUMBER_DIGITS 10
#define TIME_DIGITS 19
#define SUM_DIGITS 8

static volatile sig_atomic_t stopped;

static void on_term(int sig)
{
	(void)sig;
	stopped = 1;
}

static int64_t now_ns(clockid_t id)
{
	struct timespec ts;

	(void)clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* How long line i is, its end included. */
static size_t line_size(uint64_t i)
{
	return LINE_MIN + (size_t)(i * 7919 % LINE_SPREAD);
}

static void put_digits(char *to, int n, uint64_t v, unsigned base)
{
	for (int k = n - 1; k >= 0; k--) {
		to[k] = "0123456789abcdef"[v % base];
		v /= base;
	}
}

static bool get_digits(const char *from, int n, uint64_t *ret)
{
	*ret = 0;
	for (int k = 0; k < n; k++) {
		if (from[k] < '0' || from[k] > '9')
			return false;
		*ret = *ret * 10 + (uint64_t)(from[k] - '0');
	}
	return true;
}

static uint32_t checksum(const char *p, size_t n)
{
	uint32_t h = 2166136261u;

	for (size_t k = 0; k < n; k++)
		h = (h ^ (unsigned char)p[k]) * 16777619u;
	return h;
}

/* LETTER NUMBER TIME filler CHECKSUM end */
static size_t make_line(char *to, char letter, uint64_t i, int64_t time_ns, char end)
{
	size_t n = line_size(i);
	char *p = to;

	*p++ = letter;
	*p++ = ' ';
	put_digits(p, NUMBER_DIGITS, i, 10);
	p += NUMBER_DIGITS;
	*p++ = ' ';
	put_digits(p, TIME_DIGITS, (uint64_t)time_ns, 10);
	p += TIME_DIGITS;
	memset(p, ' ', (size_t)(to + n - 1 - SUM_DIGITS - p));
	put_digits(to + n - 1 - SUM_DIGITS, SUM_DIGITS, checksum(to, n - 1 - SUM_DIGITS), 16);
	to[n - 1] = end;
	return n;
}

/* -- writing -- */

struct writer {
	const char *file;
	char letter;
	char end;
	bool halves;
	useconds_t pause_us;
	int64_t ends_ns; /* of the monotonic clock */
	uint64_t next;
	int error;
};

static int write_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno != EINTR)
			return errno;
		if (w > 0) {
			p += w;
			n -= (size_t)w;
		}
	}
	return 0;
}

static void *run_writer(void *ctx)
{
	struct writer *w = ctx;
	char line[LINE_SIZE_MAX];
	int fd = open(w->file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0) {
		w->error = errno;
		return NULL;
	}
	while (!stopped && w->error == 0) {
		size_t n = make_line(line, w->letter, w->next, now_ns(CLOCK_REALTIME), w->end);
		size_t first = w->halves ? n / 2 : n;

		w->error = write_all(fd, line, first);
		if (w->pause_us)
			(void)usleep(w->pause_us);
		if (w->error == 0 && first < n) {
			w->error = write_all(fd, line + first, n - first);
			if (w->pause_us)
				(void)usleep(w->pause_us);
		}
		if (w->error == 0)
			w->next++;
		if (now_ns(CLOCK_MONOTONIC) > w->ends_ns)
			break;
	}
	(void)close(fd);
	return NULL;
}

/* Sleeps until each full second; its worst lateness in ns. */
static void *run_sleeper(void *ctx)
{
	int64_t *worst = ctx;

	while (!stopped) {
		int64_t second = now_ns(CLOCK_REALTIME) / 1000000000 + 1, late;
		const struct timespec until = {.tv_sec = second};

		if (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) != 0)
			continue;
		late = now_ns(CLOCK_REALTIME) - second * 1000000000;
		if (late > *worst)
			*worst = late;
	}
	return NULL;
}

static int do_write(int argc, char **argv)
{
	int64_t late_ns = 0;
	pthread_t sleeper;
	struct writer writers[WRITERS_MAX];
	pthread_t threads[WRITERS_MAX];
	struct writer w = {.letter = 'a', .end = '\n', .ends_ns = INT64_MAX};
	int c, n;

	while ((c = getopt(argc, argv, "s:p:l:f:2n")) != -1) {
		switch (c) {
		case 's':
			w.ends_ns = now_ns(CLOCK_MONOTONIC) + (int64_t)(strtod(optarg, NULL) * 1e9);
			break;
		case 'p':
			w.pause_us = (useconds_t)strtoul(optarg, NULL, 10);
			break;
		case 'l':
			w.letter = *optarg;
			break;
		case 'f':
			w.next = strtoull(optarg, NULL, 10);
			break;
		case '2':
			w.halves = true;
			break;
		case 'n':
			w.end = '.';
			break;
		default:
			return 2;
		}
	}
	n = argc - optind;
	if (n < 1 || w.letter < 'a' || w.letter - 'a' + n > WRITERS_MAX)
		return 2;
	(void)signal(SIGTERM, on_term);
	if (pthread_create(&sleeper, NULL, run_sleeper, &late_ns) != 0)
		return 2;
	for (int k = 0; k < n; k++) {
		writers[k] = w;
		writers[k].file = argv[optind + k];
		writers[k].letter = (char)(w.letter + k);
		if (pthread_create(&threads[k], NULL, run_writer, &writers[k]) != 0)
			return 2;
	}
	for (int k = 0; k < n; k++) {
		(void)pthread_join(threads[k], NULL);
		(void)printf("%c %" PRIu64 " %d\n", writers[k].letter, writers[k].next,
			     writers[k].error);
	}
	stopped = 1;
	(void)pthread_join(sleeper, NULL);
	(void)printf("late %.1f\n", (double)late_ns / 1e6);
	return 0;
}

/* -- checking -- */

struct window {
	int64_t start_ns, end_ns;
	const char *file;
};

struct seen {
	bool wanted, open_ended;
	uint64_t next, until;
	/* The line before: it was written between its own time and that of the line after it. */
	const struct window *window;
	int64_t time_ns;
};

struct check {
	char end;
	bool cut_anywhere;
	int64_t tolerance_ns; /* negative: any */
	struct seen seen[WRITERS_MAX];
	const struct window *begun; /* where the unfinished line that is handed on began */
	int64_t early_ns, late_ns; /* the worst of all lines */
	uint64_t lines;
	unsigned pieces;
};

static int wrong(const struct window *w, uint64_t at, const char *what, const char *text, size_t n)
{
	(void)printf("%s, byte %" PRIu64 ": %s: '%.*s'\n", w->file, at, what, (int)n, text);
	return -1;
}

/* A writer's last line so far is known to have been written by by_ns: does it stand where it may? */
static int place_line(struct check *c, const struct seen *s, int64_t by_ns)
{
	int64_t late, early;

	if (!s->window)
		return 0;
	late = s->time_ns - s->window->end_ns;
	early = s->window->start_ns - by_ns;
	if (late > c->late_ns)
		c->late_ns = late;
	if (early > c->early_ns)
		c->early_ns = early;
	if (c->tolerance_ns < 0 || (late <= c->tolerance_ns && early <= c->tolerance_ns))
		return 0;
	(void)printf("%s: line %" PRIu64 " of %c, of %" PRId64 ", is %.1f ms %s\n", s->window->file,
		     s->next - 1, (char)('a' + (s - c->seen)), s->time_ns,
		     (double)(late > early ? late : early) / 1e6,
		     late > early ? "behind the window" : "ahead of the window");
	return -1;
}

/* One line at p, of which `have` bytes are there. Its size; 0: more is needed; -1: it is wrong. */
static int take_line(struct check *c, const struct window *w, uint64_t at, const char *p, size_t have)
{
	const size_t head = 3 + NUMBER_DIGITS + TIME_DIGITS;
	uint64_t number, time_ns;
	char sum[SUM_DIGITS];
	struct seen *s;
	size_t n;

	if (have < head)
		return 0;
	if (*p < 'a' || *p >= 'a' + WRITERS_MAX || !c->seen[*p - 'a'].wanted ||
	    !get_digits(p + 2, NUMBER_DIGITS, &number) ||
	    !get_digits(p + 3 + NUMBER_DIGITS, TIME_DIGITS, &time_ns))
		return wrong(w, at, "no line of anybody's", p, have < 100 ? have : 100);
	n = line_size(number);
	if (have < n)
		return 0;
	put_digits(sum, SUM_DIGITS, checksum(p, n - 1 - SUM_DIGITS), 16);
	if (memcmp(p + n - 1 - SUM_DIGITS, sum, SUM_DIGITS) != 0 || p[n - 1] != c->end)
		return wrong(w, at, "a harmed line", p, n);
	s = &c->seen[*p - 'a'];
	if (number != s->next)
		return wrong(w, at, number < s->next ? "doubled or out of order" : "lines lost before it",
			     p, n - 1);
	if (place_line(c, s, (int64_t)time_ns) < 0)
		return -1;
	s->next++;
	s->window = w;
	s->time_ns = (int64_t)time_ns;
	c->lines++;
	return (int)n;
}

/* One piece; what is left of an unfinished line is handed on in carry. */
static int take_piece(struct check *c, const struct window *w, char *carry, size_t *n_carry)
{
	static char buf[LINE_SIZE_MAX + (1 << 20)];
	int fd = open(w->file, O_RDONLY | O_CLOEXEC);
	uint64_t at = 0;
	size_t have = *n_carry;
	const struct window *begun = have ? c->begun : NULL;
	bool any = false;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return wrong(w, 0, strerror(errno), "", 0);
	memcpy(buf, carry, have);
	for (;;) {
		ssize_t got = read(fd, buf + have, sizeof(buf) - have);
		size_t done = 0;
		int n = 0;

		if (got < 0) {
			(void)close(fd);
			return wrong(w, at, strerror(errno), "", 0);
		}
		if (got == 0)
			break;
		any = true;
		have += (size_t)got;
		/* A line is where its first byte is. */
		while ((n = take_line(c, begun ? begun : w, at, buf + done, have - done)) > 0) {
			begun = NULL;
			done += (size_t)n;
			at += (uint64_t)n;
		}
		if (n < 0) {
			(void)close(fd);
			return -1;
		}
		memmove(buf, buf + done, have - done);
		have -= done;
	}
	(void)close(fd);
	c->pieces += any;
	if (have && !c->cut_anywhere)
		return wrong(w, at, "it ends inside a line", buf, have);
	memcpy(carry, buf, have);
	*n_carry = have;
	c->begun = begun ? begun : w;
	return 0;
}

static bool parse_counts(struct check *c, const char *arg)
{
	char *end;
	struct seen *s;

	if (arg[0] < 'a' || arg[0] >= 'a' + WRITERS_MAX || arg[1] != '=')
		return false;
	s = &c->seen[arg[0] - 'a'];
	s->wanted = true;
	s->next = strtoull(arg + 2, &end, 10);
	if (*end != '-')
		return false;
	s->open_ended = end[1] == '?';
	s->until = s->open_ended ? 0 : strtoull(end + 1, NULL, 10);
	return true;
}

static int do_check(int argc, char **argv)
{
	struct check c = {.end = '\n', .tolerance_ns = -1};
	char carry[LINE_SIZE_MAX];
	size_t n_carry = 0;
	int k, o, status = 0;
	/* Windows are referred to by the lines before. */
	struct window *windows = calloc((size_t)argc, sizeof(*windows));

	while ((o = getopt(argc, argv, "+nct:")) != -1) {
		if (o == 'n')
			c.end = '.';
		else if (o == 'c')
			c.cut_anywhere = true;
		else if (o == 't')
			c.tolerance_ns = (int64_t)(strtod(optarg, NULL) * 1e6);
		else
			return 2;
	}
	for (k = optind; k < argc && strcmp(argv[k], "--") != 0; k++)
		if (!parse_counts(&c, argv[k]))
			return 2;
	for (k++; k < argc && status == 0; k++) {
		struct window *w = &windows[k];
		char *end;

		w->start_ns = strtoll(argv[k], &end, 10);
		w->end_ns = strtoll(end + 1, &end, 10);
		w->file = end + 1;
		status = take_piece(&c, w, carry, &n_carry);
	}
	if (status == 0 && n_carry)
		status = wrong(&windows[argc - 1], 0, "the end is inside a line", carry, n_carry);
	for (k = 0; k < WRITERS_MAX && status == 0; k++) {
		const struct seen *s = &c.seen[k];

		status = place_line(&c, s, INT64_MAX);
		if (status == 0 && s->wanted && !s->open_ended && s->next != s->until) {
			(void)printf("%c: %" PRIu64 " lines up to the end, %" PRIu64 " written\n",
				     (char)('a' + k), s->next, s->until);
			status = -1;
		}
	}
	(void)printf("lines %" PRIu64 " pieces %u early %.1f late %.1f\n", c.lines, c.pieces,
		     (double)c.early_ns / 1e6, (double)c.late_ns / 1e6);
	for (k = 0; k < WRITERS_MAX; k++)
		if (c.seen[k].wanted)
			(void)printf("%c %" PRIu64 "\n", (char)('a' + k), c.seen[k].next);
	free(windows);
	return status < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
	int r = 2;

	if (argc > 1 && !strcmp(argv[1], "write"))
		r = do_write(argc - 1, argv + 1);
	else if (argc > 1 && !strcmp(argv[1], "check"))
		r = do_check(argc - 1, argv + 1);
	if (r == 2)
		(void)fprintf(stderr, "usage: see the top of loadgen.c\n");
	return r;
}
