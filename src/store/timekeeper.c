#include "store/timekeeper.h"

/* A mark comes from the disk and a wall clock from anyone: sums stop at the end of time. */
static int64_t add_capped(int64_t a, int64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* The boot clock does not go back; if it seems to, no time has passed. */
static int64_t elapsed(int64_t from_boot_ns, int64_t to_boot_ns)
{
	return to_boot_ns > from_boot_ns ? to_boot_ns - from_boot_ns : 0;
}

const char *varve_time_state_name(enum varve_time_state state)
{
	switch (state) {
	case VARVE_TIME_GOOD:
		return "good";
	case VARVE_TIME_BEHIND:
		return "behind";
	case VARVE_TIME_UNTRUSTED:
		return "untrusted";
	}
	return "?";
}

static void believe(struct varve_timekeeper *tk, int64_t wall_ns, int64_t boot_ns)
{
	tk->state = VARVE_TIME_GOOD;
	tk->believed_ns = wall_ns;
	tk->believed_boot_ns = boot_ns;
	tk->slack_ns = 0;
}

/* The latest wall time that needs no further proof. */
static int64_t believable(const struct varve_timekeeper *tk, int64_t window_ns, int64_t boot_ns)
{
	int64_t limit = add_capped(tk->believed_ns, elapsed(tk->believed_boot_ns, boot_ns));

	return add_capped(limit, window_ns > tk->slack_ns ? window_ns : tk->slack_ns);
}

/* Whether the wall clock went from the last reading to this one as the boot clock did. */
static bool went_on_evenly(const struct varve_timekeeper *tk, int64_t window_ns, int64_t wall_ns,
			   int64_t boot_ns)
{
	int64_t expected = add_capped(tk->last_wall_ns, elapsed(tk->last_boot_ns, boot_ns));

	return wall_ns <= add_capped(expected, window_ns) &&
	       expected <= add_capped(wall_ns, window_ns);
}

static void take_jump(struct varve_timekeeper *tk, int64_t window_ns, int64_t wall_ns,
		      int64_t boot_ns)
{
	if (tk->state != VARVE_TIME_UNTRUSTED || !went_on_evenly(tk, window_ns, wall_ns, boot_ns)) {
		tk->state = VARVE_TIME_UNTRUSTED;
		tk->jump_boot_ns = boot_ns;
	}
	if (elapsed(tk->jump_boot_ns, boot_ns) >= tk->trust_ns)
		believe(tk, wall_ns, boot_ns);
}

int64_t varve_timekeeper_read(struct varve_timekeeper *tk, int64_t window_ns, int64_t wall_ns,
			      int64_t boot_ns, bool synchronised)
{
	if (wall_ns < tk->believed_ns)
		tk->state = VARVE_TIME_BEHIND;
	else if (synchronised || wall_ns <= believable(tk, window_ns, boot_ns))
		believe(tk, wall_ns, boot_ns);
	else
		take_jump(tk, window_ns, wall_ns, boot_ns);
	tk->last_wall_ns = wall_ns;
	tk->last_boot_ns = boot_ns;
	return tk->believed_ns;
}

void varve_timekeeper_start(struct varve_timekeeper *tk, int64_t mark_ns, int64_t trust_ns,
			    int64_t wall_ns, int64_t boot_ns, bool synchronised)
{
	*tk = (struct varve_timekeeper){
		.believed_ns = mark_ns ? mark_ns : wall_ns,
		.believed_boot_ns = boot_ns,
		.slack_ns = VARVE_MOUNT_JUMP_NS,
		.trust_ns = trust_ns,
	};
	(void)varve_timekeeper_read(tk, 0, wall_ns, boot_ns, synchronised);
}

void varve_timekeeper_accept(struct varve_timekeeper *tk, int64_t wall_ns, int64_t boot_ns)
{
	if (wall_ns >= tk->believed_ns)
		believe(tk, wall_ns, boot_ns);
	tk->last_wall_ns = wall_ns;
	tk->last_boot_ns = boot_ns;
}
