/*
 * The load generator of tools/bench: appends, opens, reads, and what they took. Prints one JSON object.
 *
 *	load append [-t THREADS] [-s SIZE] [-n COUNT] [-f] [-l] PREFIX
 *		each thread appends COUNT times SIZE bytes to PREFIX.N, held open; -f: fsync after each;
 *		-l: the latency of each append is taken, too
 *	load cycle [-k FILES] [-s SIZE] [-n COUNT] PREFIX
 *		open for appending, append, close, COUNT times, over FILES files in turn
 *	load hold [-t THREADS] [-k FILES] [-s SIZE] [-d SECONDS] [-b PERIOD] PREFIX
 *		holds FILES files open and appends to them in turn for SECONDS; tells apart what happens
 *		within a second of a multiple of PERIOD (of the wall clock)
 *	load pace [-s SIZE] [-d SECONDS] [-i MICROSECONDS] PREFIX
 *		one append each MICROSECONDS (0: without a pause), with the latency of each
 *	load pingpong [-d SECONDS] [-i MICROSECONDS]
 *		one byte to another process by a pipe and back by another each MICROSECONDS: what two wake-ups take
 *	load stream FILE...
 *		reads the files over and over until it is ended by SIGTERM
 *	load random [-s SIZE] [-n COUNT] [-t THREADS] FILE
 *		reads of SIZE bytes at random places
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* -- time and latencies -- */

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Buckets of a sixteenth of a power of two: good to 6 %. */
#define STEPS 16
#define SLOTS (64 * STEPS)

struct latencies {
	uint64_t count[SLOTS];
	uint64_t total, max;
};

static unsigned slot_of(uint64_t ns)
{
	unsigned power;

	if (ns < STEPS)
		return (unsigned)ns;
	power = 63 - (unsigned)__builtin_clzll(ns);
	return (power - 3) * STEPS + (unsigned)(ns >> (power - 4)) % STEPS;
}

static double slot_top(unsigned slot)
{
	if (slot < STEPS)
		return slot;
	return (double)(STEPS + slot % STEPS + 1) * (double)(1ull << (slot / STEPS - 1));
}

static void add(struct latencies *l, uint64_t ns)
{
	l->count[slot_of(ns)]++;
	l->total++;
	if (ns > l->max)
		l->max = ns;
}

static void merge(struct latencies *to, const struct latencies *from)
{
	for (unsigned i = 0; i < SLOTS; i++)
		to->count[i] += from->count[i];
	to->total += from->total;
	if (from->max > to->max)
		to->max = from->max;
}

static double quantile_us(const struct latencies *l, double q)
{
	uint64_t want = (uint64_t)((double)l->total * q), have = 0;

	for (unsigned i = 0; i < SLOTS; i++) {
		have += l->count[i];
		if (have > want)
			return (slot_top(i) < (double)l->max ? slot_top(i) : (double)l->max) / 1e3;
	}
	return (double)l->max / 1e3;
}

/* -- options -- */

static struct {
	unsigned threads, files;
	size_t size;
	uint64_t count;
	double seconds, period, interval_us;
	bool fsync, latency;
	char **names;
	int n_names;
} opt = {.threads = 1, .files = 1, .size = 128, .count = 1000, .seconds = 1, .period = 1};

static void die(const char *what, const char *name)
{
	fprintf(stderr, "load: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

static char *line_of(size_t size)
{
	static const char text[] =
		"203.0.113.7 - - [01/Dec/2026:12:00:00 +0000] \"GET /index.html HTTP/1.1\" 200 5120 ";
	char *buf = malloc(size);

	if (!buf)
		die("allocate", "the line");
	for (size_t i = 0; i < size; i++)
		buf[i] = i % 128 == 127 ? '\n' : text[i % 128 % (sizeof(text) - 1)];
	buf[size - 1] = '\n';
	return buf;
}

static int open_append(const char *prefix, unsigned n, char *name, size_t room)
{
	int fd;

	snprintf(name, room, "%s.%u", prefix, n);
	fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		die("open", name);
	return fd;
}

static void append(int fd, const char *buf, size_t size, const char *name)
{
	ssize_t n = write(fd, buf, size);

	if (n < 0 || (size_t)n != size)
		die("append to", name);
}

/* -- threads -- */

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t ops;
	struct latencies near, far; /* near: of a boundary, or all */
};

static pthread_barrier_t barrier;
static uint64_t start_ns;

static double run_workers(struct worker *w, void *(*body)(void *))
{
	pthread_barrier_init(&barrier, NULL, opt.threads + 1);
	for (unsigned i = 0; i < opt.threads; i++) {
		w[i].number = i;
		if (pthread_create(&w[i].thread, NULL, body, &w[i]))
			die("start", "a thread");
	}
	pthread_barrier_wait(&barrier);
	start_ns = now_ns(CLOCK_MONOTONIC);
	pthread_barrier_wait(&barrier);
	for (unsigned i = 0; i < opt.threads; i++)
		pthread_join(w[i].thread, NULL);
	return (double)(now_ns(CLOCK_MONOTONIC) - start_ns) / 1e9;
}

static void wait_start(void)
{
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
}

static struct worker *new_workers(void)
{
	struct worker *w = calloc(opt.threads, sizeof(*w));

	if (!w)
		die("allocate", "threads");
	return w;
}

static void print_latencies(const char *name, const struct latencies *l)
{
	printf(", \"%s\": {\"ops\": %llu, \"p50_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, \"max_us\": %.3f}",
	       name, (unsigned long long)l->total, quantile_us(l, 0.5), quantile_us(l, 0.99),
	       quantile_us(l, 0.999), (double)l->max / 1e3);
}

static void report(struct worker *w, double seconds)
{
	uint64_t ops = 0;
	struct latencies near = {0}, far = {0};

	for (unsigned i = 0; i < opt.threads; i++) {
		ops += w[i].ops;
		merge(&near, &w[i].near);
		merge(&far, &w[i].far);
	}
	printf("{\"seconds\": %.6f, \"ops\": %llu, \"ops_s\": %.1f, \"mb_s\": %.3f, \"us\": %.4f", seconds,
	       (unsigned long long)ops, (double)ops / seconds,
	       (double)ops * (double)opt.size / seconds / 1e6, seconds * 1e6 / (double)ops);
	print_latencies("near", &near);
	print_latencies("far", &far);
	printf("}\n");
	free(w);
}

/* -- append -- */

static void *append_body(void *arg)
{
	struct worker *w = arg;
	char name[4096], *buf = line_of(opt.size);
	int fd = open_append(opt.names[0], w->number, name, sizeof(name));

	wait_start();
	for (uint64_t i = 0; i < opt.count; i++) {
		uint64_t t = opt.latency ? now_ns(CLOCK_MONOTONIC) : 0;

		append(fd, buf, opt.size, name);
		if (opt.fsync && fsync(fd) < 0)
			die("fsync", name);
		if (opt.latency)
			add(&w->near, now_ns(CLOCK_MONOTONIC) - t);
	}
	w->ops = opt.count;
	close(fd);
	free(buf);
	return NULL;
}

static void do_append(void)
{
	struct worker *w = new_workers();

	report(w, run_workers(w, append_body));
}

/* -- open, append, close -- */

static void do_cycle(void)
{
	struct worker *w;
	char name[4096], *buf = line_of(opt.size);
	uint64_t t;

	opt.threads = 1;
	w = new_workers();
	for (unsigned i = 0; i < opt.files; i++)
		close(open_append(opt.names[0], i, name, sizeof(name)));
	t = now_ns(CLOCK_MONOTONIC);
	for (uint64_t i = 0; i < opt.count; i++) {
		int fd = open_append(opt.names[0], (unsigned)(i % opt.files), name, sizeof(name));

		append(fd, buf, opt.size, name);
		close(fd);
	}
	w->ops = opt.count;
	report(w, (double)(now_ns(CLOCK_MONOTONIC) - t) / 1e9);
	free(buf);
}

/* -- many held descriptors -- */

static int *held;

static bool near_boundary(void)
{
	double t = (double)now_ns(CLOCK_REALTIME) / 1e9;
	double past = t - opt.period * (double)(uint64_t)(t / opt.period);

	return past < 1 || past > opt.period - 1;
}

static void *hold_body(void *arg)
{
	struct worker *w = arg;
	char *buf = line_of(opt.size);
	uint64_t end;

	wait_start();
	end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(opt.seconds * 1e9);
	for (unsigned i = w->number;; i += opt.threads) {
		bool near = near_boundary();
		uint64_t t = now_ns(CLOCK_MONOTONIC), took;

		if (t >= end)
			break;
		if (i >= opt.files)
			i = w->number;
		append(held[i], buf, opt.size, "a held file");
		took = now_ns(CLOCK_MONOTONIC) - t;
		/* One that began before and ended after the edge belongs to the boundary. */
		add(near || near_boundary() ? &w->near : &w->far, took);
		w->ops++;
	}
	free(buf);
	return NULL;
}

static void do_hold(void)
{
	struct rlimit lim = {opt.files + 64, opt.files + 64};
	struct worker *w = new_workers();
	char name[4096], *buf = line_of(opt.size);
	double seconds;

	if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
		die("raise", "the limit of open files");
	held = calloc(opt.files, sizeof(*held));
	if (!held)
		die("allocate", "descriptors");
	for (unsigned i = 0; i < opt.files; i++) {
		held[i] = open_append(opt.names[0], i, name, sizeof(name));
		append(held[i], buf, opt.size, name);
	}
	seconds = run_workers(w, hold_body);
	report(w, seconds);
	free(held);
	free(buf);
}

/* -- paced appends -- */

static void *pace_body(void *arg)
{
	struct worker *w = arg;
	char name[4096], *buf = line_of(opt.size);
	int fd = open_append(opt.names[0], w->number, name, sizeof(name));
	uint64_t next, end;

	wait_start();
	next = now_ns(CLOCK_MONOTONIC);
	end = next + (uint64_t)(opt.seconds * 1e9);
	for (;;) {
		uint64_t t = now_ns(CLOCK_MONOTONIC);

		if (t >= end)
			break;
		if (t < next) {
			struct timespec ts = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};

			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
			t = now_ns(CLOCK_MONOTONIC);
		}
		append(fd, buf, opt.size, name);
		add(&w->near, now_ns(CLOCK_MONOTONIC) - t);
		w->ops++;
		next = t + (uint64_t)(opt.interval_us * 1e3);
	}
	close(fd);
	free(buf);
	return NULL;
}

static void do_pace(void)
{
	struct worker *w = new_workers();

	report(w, run_workers(w, pace_body));
}

/* -- two wake-ups -- */

static void answer_pings(int from, int to)
{
	char c;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(from, &c, 1) == 1)
		if (write(to, &c, 1) != 1)
			break;
	_exit(0);
}

static void do_pingpong(void)
{
	struct worker *w;
	uint64_t begun, next, end;
	int there[2], back[2];
	char c = 0;

	opt.threads = 1;
	w = new_workers();
	if (pipe(there) < 0 || pipe(back) < 0)
		die("make", "pipes");
	switch (fork()) {
	case -1: die("start", "the other process"); break;
	case 0:
		(void)close(there[1]);
		answer_pings(there[0], back[1]);
	}
	begun = next = now_ns(CLOCK_MONOTONIC);
	end = begun + (uint64_t)(opt.seconds * 1e9);
	for (;;) {
		struct timespec ts = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
		uint64_t t;

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		t = now_ns(CLOCK_MONOTONIC);
		if (t >= end)
			break;
		if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
			die("use", "the pipes");
		add(&w->near, now_ns(CLOCK_MONOTONIC) - t);
		w->ops++;
		next = t + (uint64_t)(opt.interval_us * 1e3);
	}
	report(w, (double)(now_ns(CLOCK_MONOTONIC) - begun) / 1e9);
}

/* -- reading -- */

static volatile sig_atomic_t ended;

static void on_term(int sig)
{
	(void)sig;
	ended = 1;
}

static void do_stream(void)
{
	const size_t room = 128 << 10;
	char *buf = malloc(room);
	uint64_t bytes = 0, t = now_ns(CLOCK_MONOTONIC);

	if (!buf)
		die("allocate", "a buffer");
	signal(SIGTERM, on_term);
	for (int i = 0; !ended; i = (i + 1) % opt.n_names) {
		int fd = open(opt.names[i], O_RDONLY | O_CLOEXEC);
		ssize_t n;

		if (fd < 0)
			die("open", opt.names[i]);
		while (!ended && (n = read(fd, buf, room)) != 0) {
			if (n < 0)
				die("read", opt.names[i]);
			bytes += (uint64_t)n;
		}
		close(fd);
	}
	free(buf);
	printf("{\"mb_s\": %.3f}\n", (double)bytes / ((double)(now_ns(CLOCK_MONOTONIC) - t) / 1e3));
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static void *random_body(void *arg)
{
	struct worker *w = arg;
	uint64_t state = w->number + 1, places;
	char *buf = malloc(opt.size);
	int fd = open(opt.names[0], O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (!buf || fd < 0 || fstat(fd, &st) < 0)
		die("open", opt.names[0]);
	places = (uint64_t)st.st_size / opt.size;
	if (!places) {
		errno = EINVAL;
		die("read at random", opt.names[0]);
	}
	wait_start();
	for (uint64_t i = 0; i < opt.count; i++) {
		off_t at = (off_t)(next_random(&state) % places * opt.size);
		uint64_t t = now_ns(CLOCK_MONOTONIC);

		if (pread(fd, buf, opt.size, at) != (ssize_t)opt.size)
			die("read", opt.names[0]);
		add(&w->near, now_ns(CLOCK_MONOTONIC) - t);
	}
	w->ops = opt.count;
	close(fd);
	free(buf);
	return NULL;
}

static void do_random(void)
{
	struct worker *w = new_workers();

	report(w, run_workers(w, random_body));
}

/* -- main -- */

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} modes[] = {{"append", do_append}, {"cycle", do_cycle},   {"hold", do_hold},
		     {"pace", do_pace},	    {"stream", do_stream}, {"random", do_random},
		     {"pingpong", do_pingpong}};
	int c;

	while ((c = getopt(argc, argv, "t:k:s:n:d:b:i:fl")) != -1) {
		switch (c) {
		case 't': opt.threads = (unsigned)atoi(optarg); break;
		case 'k': opt.files = (unsigned)atoi(optarg); break;
		case 's': opt.size = (size_t)atoll(optarg); break;
		case 'n': opt.count = (uint64_t)atoll(optarg); break;
		case 'd': opt.seconds = atof(optarg); break;
		case 'b': opt.period = atof(optarg); break;
		case 'i': opt.interval_us = atof(optarg); break;
		case 'f': opt.fsync = true; break;
		case 'l': opt.latency = true; break;
		default: return 2;
		}
	}
	opt.names = argv + optind + 1;
	opt.n_names = argc - optind - 1;
	if ((opt.n_names < 1 && (optind >= argc || strcmp(argv[optind], "pingpong") != 0)) || !opt.threads || !opt.files || !opt.size) {
		fprintf(stderr, "load: MODE [OPTIONS] FILE...; see the head of load.c\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(argv[optind], modes[i].name) == 0) {
			modes[i].run();
			return 0;
		}
	fprintf(stderr, "load: no mode %s\n", argv[optind]);
	return 2;
}
