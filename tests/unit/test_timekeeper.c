#include <inttypes.h>
#include <stdlib.h>

#include "../lib/unit.h"
#include "base/clock.h"
#include "store/timekeeper.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define S VARVE_NS_PER_S
#define MIN (60 * S)
#define H (60 * MIN)
#define D (24 * H)
#define MONTHS_8 (243 * D)

/* When scenes begin: 2026-12-01T02:00:00Z, an hour after boot. */
#define T0 (INT64_C(1796090400) * S)
#define B0 H

#define GOOD VARVE_TIME_GOOD
#define BEHIND VARVE_TIME_BEHIND
#define UNTRUSTED VARVE_TIME_UNTRUSTED

enum act { END, READ, SYNC, ACCEPT };

/* One reading: boot time goes on by `passed`, the wall clock then shows T0 + `wall`; what is
 * believed afterwards is T0 + `believed`. */
struct step {
	enum act act;
	int64_t passed;
	int64_t wall;
	enum varve_time_state state;
	int64_t believed;
};

struct scene {
	const char *what;
	int64_t window;
	int64_t trust;
	int64_t mark;      /* T0 + mark is the persisted mark; -T0: a new store */
	struct step start; /* at mount; SYNC: synchronised then */
	struct step steps[14];
};

#define AT_ZERO                                                                                    \
	{                                                                                          \
		READ, 0, 0, GOOD, 0                                                                \
	}

static const struct scene scenes[] = {
	{"a clock that runs well",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, S, GOOD, S}, {READ, D, D + S, GOOD, D + S}, {READ, 0, D + S, GOOD, D + S}}},
	{"a new store believes the wall clock",
	 D,
	 H,
	 -T0,
	 {READ, 0, -MONTHS_8, GOOD, -MONTHS_8},
	 {{READ, S, -MONTHS_8 + S, GOOD, -MONTHS_8 + S}}},
	{"set back at run time, and it catches up",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, 10 * S, 10 * S, GOOD, 10 * S},
	  {READ, S, -H, BEHIND, 10 * S},
	  {READ, MIN, -H + MIN, BEHIND, 10 * S},
	  {SYNC, MIN, -H + 2 * MIN, BEHIND, 10 * S},
	  {READ, H, 9 * S, BEHIND, 10 * S},
	  {READ, S, 10 * S, GOOD, 10 * S},
	  {READ, S, 11 * S, GOOD, 11 * S}}},
	{"set back, then right again: boot time bears it out",
	 MIN,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, -MONTHS_8, BEHIND, 0},
	  {READ, 2 * H, -MONTHS_8 + 2 * H, BEHIND, 0},
	  {READ, S, 2 * H + 2 * S, GOOD, 2 * H + 2 * S}}},
	{"set back, then too far ahead",
	 MIN,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, -MONTHS_8, BEHIND, 0},
	  {READ, H, H + S + MIN + 1, UNTRUSTED, 0},
	  {READ, S, -H, BEHIND, 0},
	  {READ, S, H + 3 * S, GOOD, H + 3 * S}}},
	{"ahead by less than a window, and by just one",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, S + H, GOOD, S + H},
	  {READ, S, 2 * S + H + D, GOOD, 2 * S + H + D},
	  {READ, S, 3 * S + H + D, GOOD, 3 * S + H + D}}},
	{"ahead by more than a window, and back",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, S + D + 1, UNTRUSTED, 0}, {READ, S, 2 * S + D, GOOD, 2 * S + D}}},
	{"how far ahead is too far follows the window",
	 10 * S,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, 11 * S, GOOD, 11 * S}, {READ, S, 22 * S + 1, UNTRUSTED, 11 * S}}},
	{"a laptop that was suspended",
	 MIN,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, 9 * H, 9 * H, GOOD, 9 * H},
	  {READ, 90 * D, 9 * H + 90 * D + MIN, GOOD, 9 * H + 90 * D + MIN}}},
	{"case 11: eight months ahead and back",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0},
	  {READ, 10 * MIN, MONTHS_8 + 10 * MIN, UNTRUSTED, 0},
	  {READ, 10 * MIN, MONTHS_8 + 20 * MIN, UNTRUSTED, 0},
	  {READ, S, 20 * MIN + 2 * S, GOOD, 20 * MIN + 2 * S},
	  {READ, S, 20 * MIN + 3 * S, GOOD, 20 * MIN + 3 * S}}},
	{"ahead, back, ahead: the time of trust begins anew",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0},
	  {READ, 50 * MIN, MONTHS_8 + 50 * MIN, UNTRUSTED, 0},
	  {READ, S, 50 * MIN, GOOD, 50 * MIN},
	  {READ, S, MONTHS_8, UNTRUSTED, 50 * MIN},
	  {READ, 59 * MIN, MONTHS_8 + 59 * MIN, UNTRUSTED, 50 * MIN},
	  {READ, MIN, MONTHS_8 + 60 * MIN, GOOD, MONTHS_8 + 60 * MIN}}},
	{"trust time reached",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0},
	  {READ, H - 1, MONTHS_8 + H - 1, UNTRUSTED, 0},
	  {READ, 1, MONTHS_8 + H, GOOD, MONTHS_8 + H},
	  {READ, S, MONTHS_8 + H + S, GOOD, MONTHS_8 + H + S}}},
	{"a second jump ahead begins the time of trust anew",
	 MIN,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0},
	  {READ, 30 * MIN, MONTHS_8 + 31 * MIN, UNTRUSTED, 0},
	  {READ, 29 * MIN, MONTHS_8 + 62 * MIN, UNTRUSTED, 0},
	  {READ, 59 * MIN, MONTHS_8 + 121 * MIN, UNTRUSTED, 0},
	  {READ, MIN, MONTHS_8 + 122 * MIN, GOOD, MONTHS_8 + 122 * MIN}}},
	{"so does a jump back that is still too far ahead",
	 MIN,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0},
	  {READ, 59 * MIN, MONTHS_8, UNTRUSTED, 0},
	  {READ, MIN, MONTHS_8 + MIN, UNTRUSTED, 0},
	  {READ, 59 * MIN, MONTHS_8 + 60 * MIN, GOOD, MONTHS_8 + 60 * MIN}}},
	{"a clock that is slewed is still even, however small the window",
	 S,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0},
	  {READ, 20 * MIN, MONTHS_8 + 20 * MIN + S, UNTRUSTED, 0},
	  {READ, 20 * MIN, MONTHS_8 + 40 * MIN + 2 * S, UNTRUSTED, 0},
	  {READ, 20 * MIN, MONTHS_8 + 60 * MIN + 3 * S, GOOD, MONTHS_8 + 60 * MIN + 3 * S}}},
	{"no time of trust: believed at once",
	 D,
	 0,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, GOOD, MONTHS_8}}},
	{"synchronised: believed at once",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0}, {SYNC, S, MONTHS_8 + S, GOOD, MONTHS_8 + S}}},
	{"accepted: believed at once",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0},
	  {ACCEPT, S, MONTHS_8 + S, GOOD, MONTHS_8 + S},
	  {READ, S, MONTHS_8 + 2 * S, GOOD, MONTHS_8 + 2 * S},
	  {READ, S, 3 * S, BEHIND, MONTHS_8 + 2 * S}}},
	{"accepting a clock that is behind changes nothing",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, -H, BEHIND, 0}, {ACCEPT, S, -H + S, BEHIND, 0}, {READ, H, 2 * S, GOOD, 2 * S}}},
	{"steps of just one window are even",
	 MIN,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, MONTHS_8, UNTRUSTED, 0},
	  {READ, 30 * MIN, MONTHS_8 + 31 * MIN, UNTRUSTED, 0},
	  {READ, 30 * MIN, MONTHS_8 + 60 * MIN, GOOD, MONTHS_8 + 60 * MIN}}},
	{"a clock accepted just when it has caught up",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, S, -S, BEHIND, 0}, {ACCEPT, S, 0, GOOD, 0}}},
	/* at mount */
	{"mounted 90 days after", MIN, H, -90 * D, AT_ZERO, {{READ, S, S, GOOD, S}}},
	{"mounted more than 90 days after, and trusted",
	 MIN,
	 H,
	 -90 * D - 1,
	 {READ, 0, 0, UNTRUSTED, -90 * D - 1},
	 {{READ, H - 1, H - 1, UNTRUSTED, -90 * D - 1}, {READ, 1, H, GOOD, H}}},
	{"mounted more than 90 days after, synchronised",
	 MIN,
	 H,
	 -900 * D,
	 {SYNC, 0, 0, GOOD, 0},
	 {{READ, S, S, GOOD, S}}},
	{"mounted more than 90 days after, synchronised later",
	 MIN,
	 H,
	 -900 * D,
	 {READ, 0, 0, UNTRUSTED, -900 * D},
	 {{SYNC, S, S, GOOD, S}}},
	{"mounted more than 90 days after, accepted",
	 MIN,
	 H,
	 -900 * D,
	 {READ, 0, 0, UNTRUSTED, -900 * D},
	 {{ACCEPT, S, S, GOOD, S}}},
	{"mounted far ahead, set right to two days after the mark",
	 H,
	 H,
	 -MONTHS_8,
	 {READ, 0, 0, UNTRUSTED, -MONTHS_8},
	 {{READ, S, -MONTHS_8 + 2 * D, GOOD, -MONTHS_8 + 2 * D},
	  {READ, S, -MONTHS_8 + 2 * D + H + 2 * S, UNTRUSTED, -MONTHS_8 + 2 * D}}},
	{"mounted with a clock that is behind, and it catches up",
	 D,
	 H,
	 H,
	 {READ, 0, 0, BEHIND, H},
	 {{READ, S, S, BEHIND, H}, {READ, H, H + S, GOOD, H + S}}},
	{"mounted with no clock at all, set right to two days after the mark",
	 MIN,
	 H,
	 0,
	 {READ, 0, -MONTHS_8, BEHIND, 0},
	 {{READ, S, -MONTHS_8 + S, BEHIND, 0},
	  {READ, S, 2 * D, GOOD, 2 * D},
	  {READ, S, 2 * D + MIN + 2 * S, UNTRUSTED, 2 * D}}},
	{"mounted with no clock at all, set 91 days after the mark",
	 MIN,
	 H,
	 0,
	 {READ, 0, -MONTHS_8, BEHIND, 0},
	 {{READ, S, 91 * D, UNTRUSTED, 0}}},
	{"the boot clock seems to go back",
	 D,
	 H,
	 0,
	 AT_ZERO,
	 {{READ, -MIN, S, GOOD, S}, {READ, -MIN, S + D, GOOD, S + D}}},
};

static void check_step(const struct scene *sc, size_t n, const struct step *step,
		       const struct varve_timekeeper *tk)
{
	ck_assert_msg(tk->state == step->state, "%s, step %zu: %s, not %s", sc->what, n,
		      varve_time_state_name(tk->state), varve_time_state_name(step->state));
	ck_assert_msg(tk->believed_ns == T0 + step->believed, "%s, step %zu: off by %" PRId64 " ns",
		      sc->what, n, tk->believed_ns - T0 - step->believed);
}

START_TEST(scene)
{
	const struct scene *sc = &scenes[_i];
	struct varve_timekeeper tk;
	int64_t boot = B0;

	varve_timekeeper_start(&tk, T0 + sc->mark, sc->trust, T0 + sc->start.wall, boot,
			       sc->start.act == SYNC);
	check_step(sc, 0, &sc->start, &tk);
	for (size_t i = 0; sc->steps[i].act != END; i++) {
		const struct step *step = &sc->steps[i];

		ck_assert_uint_lt(i, N(sc->steps) - 1);
		boot += step->passed;
		if (step->act == ACCEPT)
			varve_timekeeper_accept(&tk, T0 + step->wall, boot);
		else
			ck_assert_int_eq(varve_timekeeper_read(&tk, sc->window, T0 + step->wall,
							       boot, step->act == SYNC),
					 T0 + step->believed);
		check_step(sc, i + 1, step, &tk);
	}
}
END_TEST

/* A mark or a clock at the ends of time is no reason to overflow. */
START_TEST(ends_of_time)
{
	static const int64_t values[] = {INT64_MIN, -1, 1, T0, INT64_MAX - 1, INT64_MAX};
	static const int64_t spans[] = {0, 1, S, 31 * D, INT64_MAX};

	for (size_t m = 0; m < N(values); m++) {
		for (size_t w = 0; w < N(values); w++) {
			for (size_t p = 0; p < N(spans); p++) {
				struct varve_timekeeper tk;
				int64_t before;

				varve_timekeeper_start(&tk, values[m], spans[p], values[w], 0,
						       false);
				before = tk.believed_ns;
				ck_assert_int_ge(before, values[m]);
				for (size_t i = 0; i < N(values); i++) {
					int64_t now =
						varve_timekeeper_read(&tk, spans[p], values[i],
								      spans[i % N(spans)], false);

					ck_assert_int_ge(now, before);
					before = now;
				}
			}
		}
	}
}
END_TEST

static int64_t random_below(int64_t n)
{
	return (int64_t)((((uint64_t)random() << 31) ^ (uint64_t)random()) % (uint64_t)n);
}

/* Random steps of an unsteady clock: time never goes back, is never ahead of what the wall clock
 * ever showed, is the wall clock when good and stays when not; without a time of trust, it is never
 * more than one window for each reading ahead of boot time. */
START_TEST(random_clocks)
{
	srandom(3);
	for (int round = 0; round < 2000; round++) {
		int64_t window = 1 + random_below(2 * D), boot = B0, wall = T0, most = T0;
		struct varve_timekeeper tk;

		varve_timekeeper_start(&tk, T0, INT64_MAX, wall, boot, false);
		for (int i = 1; i <= 100; i++) {
			int64_t passed = random_below(H), before = tk.believed_ns;

			boot += passed;
			wall += passed;
			if (random() % 4 == 0)
				wall += random_below(6 * D) - 3 * D;
			most = wall > most ? wall : most;
			varve_timekeeper_read(&tk, window, wall, boot, false);
			ck_assert_int_ge(tk.believed_ns, before);
			ck_assert_int_le(tk.believed_ns, most);
			ck_assert_int_le(tk.believed_ns - T0, boot - B0 + i * window);
			ck_assert_int_eq(tk.believed_ns, tk.state == GOOD ? wall : before);
			ck_assert_int_eq(tk.state == BEHIND, wall < before);
		}
		/* and once the clock shows what boot time bears out, all is good */
		wall = tk.believed_ns + (boot - tk.believed_boot_ns);
		ck_assert_int_eq(varve_timekeeper_read(&tk, window, wall, boot, false), wall);
		ck_assert_int_eq(tk.state, GOOD);
	}
}
END_TEST

T_MAIN("timekeeper", 60)
{
	tcase_add_loop_test(tc, scene, 0, (int)N(scenes));
	tcase_add_test(tc, ends_of_time);
	tcase_add_test(tc, random_clocks);
}
