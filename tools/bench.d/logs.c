/*
 * Log lines from a seed, to standard output: the same seed, kind and size give the same bytes.
 *
 *	logs access|app|json SEED BYTES [SECOND]
 *
 * access: a web server's; app: a service's, with levels, threads, ids and now and then a trace; json: an
 * event a line. Times begin at SECOND (of the Unix epoch) and pass as lines come. What repeats, repeats as
 * it does in the field: few hosts, paths and agents make most of the lines, in sessions; ids, times, sizes
 * and durations are new each time. BYTES is met exactly: the last line is cut.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t state;

static uint64_t rnd(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static unsigned below(unsigned n)
{
	return (unsigned)((rnd() >> 32) * n >> 32);
}

/* Small numbers are frequent, as popularity goes: about 1/k. */
static unsigned popular(unsigned n)
{
	unsigned a = below(n) + 1;

	return below(a);
}

/* A fixed draw of a key: the same key always gets the same. */
static unsigned fixed(uint64_t key, unsigned n)
{
	uint64_t z = key * 0xff51afd7ed558ccdu;

	z = (z ^ (z >> 33)) * 0xc4ceb9fe1a85ec53u;
	return (unsigned)((z >> 40) % n);
}

#define PICK(list) list[popular(sizeof(list) / sizeof(list[0]))]
#define FIXED(list, key) list[fixed(key, sizeof(list) / sizeof(list[0]))]

static const char *const words[] = {
	"index", "images", "blog", "archive", "static", "js", "css", "style", "login", "account", "search",
	"product", "cart", "checkout", "order", "feed", "news", "about", "help", "download", "files", "user",
	"profile", "settings", "report", "chart", "event", "photo", "video", "release", "docs", "guide", "api",
	"v1", "v2", "list", "item", "group", "tag", "comment", "kibana", "dashboard", "export", "upload"};
static const char *const ends[] = {"", "/", ".html", ".png", ".js", ".css", ".jpg", ".xml", ".svg", ".pdf"};
static const char *const agents[] = {
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%u.0.%u.%u Safari/537.36",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%u.0.%u.%u Safari/537.36",
	"Mozilla/5.0 (X11; Linux x86_64; rv:%u.0) Gecko/20100101 Firefox/%u.%u",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 17_%u like Mac OS X) AppleWebKit/605.1.%u (KHTML, like Gecko) Version/17.%u Mobile/15E148 Safari/604.1",
	"Mozilla/5.0 (compatible; Googlebot/%u.1; +http://www.google.com/bot.html) rev/%u.%u",
	"UniversalFeedParser/%u.2-pre-%u-svn +http://feedparser.org/ %u",
	"curl/%u.%u.%u"};
static const char *const services[] = {"auth", "billing", "catalog", "gateway", "mailer", "orders", "search", "stock"};
static const char *const levels[] = {"INFO", "DEBUG", "WARN", "ERROR"};
static const char *const classes[] = {
	"http.AccessFilter", "db.ConnectionPool", "cache.RegionCache", "queue.Consumer", "queue.Producer",
	"scheduler.JobRunner", "session.SessionStore", "payment.Gateway", "mail.Sender", "index.Merger",
	"rpc.Client", "rpc.Server"};

static time_t second;
static unsigned micros;
static struct tm utc;

static void pass_time(unsigned mean_us)
{
	micros += below(2 * mean_us);
	while (micros >= 1000000) {
		micros -= 1000000;
		second++;
		gmtime_r(&second, &utc);
	}
}

/* -- a web server's lines: visitors of few addresses, each on a walk over related paths -- */

struct visitor {
	unsigned address, agent, section, left;
};

static int path_of(char *out, size_t room, unsigned section, unsigned page)
{
	uint64_t key = (uint64_t)section * 1000 + page;
	int n = snprintf(out, room, "/%s/%s-%u", FIXED(words, section * 7 + 1), FIXED(words, key * 3 + 2),
			 fixed(key, 90));

	if (fixed(key + 5, 3))
		n += snprintf(out + n, room - (size_t)n, "/%s", FIXED(words, key * 5 + 3));
	return n + snprintf(out + n, room - (size_t)n, "%s", FIXED(ends, key * 11 + 4));
}

static int access_line(char *out, size_t room)
{
	static const unsigned statuses[] = {200, 200, 200, 200, 304, 200, 404, 301, 206, 500};
	static struct visitor visitors[64];
	struct visitor *v = &visitors[below(64)];
	char path[256], from[320] = "-", agent[256], when[40];
	unsigned page, status = PICK(statuses);
	uint64_t k;
	int n;

	pass_time(40000);
	if (!v->left) {
		*v = (struct visitor){popular(30000), popular(popular(300) + 1), popular(80), 1 + below(25)};
		v->left++;
	}
	v->left--;
	page = popular(200);
	n = path_of(path, sizeof(path), v->section, page);
	if (below(12) == 0)
		snprintf(path + n, sizeof(path) - (size_t)n, "?q=%s&page=%u&id=%08x", PICK(words), below(40),
			 (unsigned)rnd());
	if (below(5) < 3) {
		n = snprintf(from, sizeof(from), "http://www.example.org");
		path_of(from + n, sizeof(from) - (size_t)n, v->section, page / 8);
	}
	k = v->agent;
	/* The pattern is one of the constants above. */
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(agent, sizeof(agent), FIXED(agents, k), 90 + fixed(k + 1, 40), 1000 + fixed(k + 2, 5000),
		 fixed(k + 3, 200));
	strftime(when, sizeof(when), "%d/%b/%Y:%H:%M:%S +0000", &utc);
	k = v->address;
	return snprintf(out, room, "%u.%u.%u.%u - - [%s] \"%s %s HTTP/1.1\" %u %u \"%s\" \"%s\"\n",
			1 + fixed(k, 220), fixed(k + 7, 256), fixed(k + 8, 256), fixed(k + 9, 256), when,
			below(20) ? "GET" : "POST", path, status,
			status == 304 ? 0 : below(6) ? fixed(v->section * 1000 + page, 90000) : below(500000), from,
			agent);
}

/* -- a service's lines -- */

static int app_line(char *out, size_t room)
{
	static const char *const verbs[] = {"handled", "received", "completed", "queued", "retrying", "rejected"};
	unsigned kind = popular(9), service = popular(8), cls = popular(12), level = below(100);
	char when[40];
	int n;

	pass_time(3000);
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &utc);
	n = snprintf(out, room, "%s,%03u [%s-worker-%u] %-5s com.example.%s.%s - ", when, micros / 1000,
		     services[service], below(16), levels[level < 85 ? 0 : level < 94 ? 1 : level < 98 ? 2 : 3], services[service], classes[cls]);
#define SAY(...) n += snprintf(out + n, room - (size_t)n, __VA_ARGS__)
	switch (kind) {
	case 0:
		SAY("request %08x-%04x %s /%s/%s/%u in %u ms", (unsigned)rnd(), below(65536), PICK(verbs),
		    PICK(words), PICK(words), popular(100000), popular(3000));
		break;
	case 1:
		SAY("cache hit for key %s:%s:%u, region %u", services[service], PICK(words), popular(50000),
		    below(8));
		break;
	case 2:
		SAY("connection %u to db-%u.internal:5432 taken from pool (active %u, idle %u, waiting %u)",
		    popular(64), below(4), below(64), below(64), popular(10));
		break;
	case 3:
		SAY("session %016llx of user %u renewed, expires in %u s", (unsigned long long)rnd(),
		    popular(200000), 600 * (1 + below(6)));
		break;
	case 4:
		SAY("message %u on topic %s.%s offset %llu %s", below(1000000), services[service], PICK(words),
		    (unsigned long long)second * 31 + micros, PICK(verbs));
		break;
	case 5:
		SAY("job %s-%s finished in %u ms, %u rows, next run in 60 s", PICK(words), PICK(words),
		    popular(60000), popular(5000));
		break;
	case 6:
		SAY("slow query (%u ms): SELECT id, state, updated_at FROM %s WHERE %s_id = %u ORDER BY updated_at DESC LIMIT 50",
		    200 + popular(9000), PICK(words), PICK(words), popular(900000));
		break;
	case 7:
		SAY("circuit breaker for %s is %s after %u failures", PICK(services),
		    below(2) ? "open" : "half-open", 3 + below(20));
		break;
	default:
		SAY("upstream %s answered %u: java.net.SocketTimeoutException: Read timed out", PICK(services),
		    500 + below(5));
		for (unsigned i = 0, deep = 4 + below(12); i < deep; i++)
			SAY("\n\tat com.example.%s.%s.%s(%s.java:%u)", services[service], FIXED(classes, cls + i),
			    FIXED(words, cls * 31 + i), FIXED(classes, cls + i), 20 + fixed(cls * 37 + i, 400));
		break;
	}
	SAY("\n");
#undef SAY
	return n;
}

/* -- JSON lines -- */

static int json_line(char *out, size_t room)
{
	static const char *const events[] = {"page_view", "click", "purchase", "search", "signup", "error"};
	static const char *const countries[] = {"DE", "US", "FR", "GB", "NL", "JP", "BR", "IN", "PL", "SE"};
	unsigned user = popular(300000), device = popular(5000);
	char when[40];

	pass_time(5000);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &utc);
	return snprintf(out, room,
			"{\"ts\":\"%s.%06uZ\",\"host\":\"web%u\",\"service\":\"%s\",\"event\":\"%s\",\"user_id\":%u,"
			"\"session\":\"%08x%08x\",\"country\":\"%s\",\"device\":\"sensor-%05u\",\"path\":\"/%s/%s\","
			"\"duration_ms\":%u.%u,\"status\":%u,\"bytes\":%u,\"ok\":%s}\n",
			when, micros, popular(12), PICK(services), PICK(events), user, fixed(user * 3 + second / 900, 1u << 30),
			fixed(user, 1u << 30), FIXED(countries, user), device, PICK(words), PICK(words), popular(900),
			below(10), below(30) ? 200 : 400 + below(5), popular(90000), below(30) ? "true" : "false");
}

int main(int argc, char **argv)
{
	static char buf[1 << 20];
	int (*line)(char *, size_t) = NULL;
	uint64_t left;
	size_t have = 0;

	if (argc >= 4)
		line = strcmp(argv[1], "access") == 0 ? access_line :
		       strcmp(argv[1], "app") == 0    ? app_line :
		       strcmp(argv[1], "json") == 0   ? json_line :
							NULL;
	if (!line) {
		fprintf(stderr, "logs access|app|json SEED BYTES [SECOND]\n");
		return 2;
	}
	state = strtoull(argv[2], NULL, 10) * 0x2545f4914f6cdd1du + 1;
	left = strtoull(argv[3], NULL, 10);
	second = argc > 4 ? strtoll(argv[4], NULL, 10) : 1796083200;
	gmtime_r(&second, &utc);
	while (left) {
		size_t n = 0, done = 0;

		while (have < sizeof(buf) - 8192 && have < left)
			have += (size_t)line(buf + have, sizeof(buf) - have);
		n = have < left ? have : left;
		while (done < n) {
			ssize_t w = write(STDOUT_FILENO, buf + done, n - done);

			if (w < 0) {
				perror("logs: write");
				return 1;
			}
			done += (size_t)w;
		}
		left -= n;
		have = 0;
	}
	return 0;
}
