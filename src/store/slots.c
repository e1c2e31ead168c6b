#include "store/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "format/digest.h"

#define SLOT_ALIGN 4096 /* two slots never share a block that a torn write could take with it */
#define HEADER_BYTES (VARVE_SLOTS_MAGIC_BYTES + 8 + 8)
#define OVERHEAD_BYTES (HEADER_BYTES + 8)

struct varve_slots {
	int fd;
	char magic[VARVE_SLOTS_MAGIC_BYTES];
	size_t stride;      /* bytes of a slot */
	unsigned next;      /* the slot that the next write goes to */
	uint64_t sequence;  /* of the newest record; 0: none yet */
	unsigned char *buf; /* stride bytes: a slot on its way in or out */
};

enum slot_state { SLOT_EMPTY, SLOT_VALID, SLOT_DAMAGED };

struct slot {
	enum slot_state state;
	uint64_t sequence;
	size_t len; /* of the payload */
};

static size_t stride_for(size_t payload)
{
	return (payload + OVERHEAD_BYTES + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

static bool all_zero(const unsigned char *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static struct slot check_slot(const struct varve_slots *s)
{
	struct slot slot = {.state = SLOT_DAMAGED};
	struct varve_cursor c = {.p = s->buf, .left = s->stride};
	const void *magic = varve_cursor_take(&c, VARVE_SLOTS_MAGIC_BYTES);
	uint64_t sequence = varve_cursor_le(&c, 8);
	uint64_t len = varve_cursor_le(&c, 8);

	if (all_zero(s->buf, s->stride)) {
		slot.state = SLOT_EMPTY;
		return slot;
	}
	if (c.bad || memcmp(magic, s->magic, VARVE_SLOTS_MAGIC_BYTES) != 0 || sequence == 0 ||
	    len > s->stride - OVERHEAD_BYTES)
		return slot;
	if (varve_get_le64(s->buf + HEADER_BYTES + len) != varve_hash64(s->buf, HEADER_BYTES + len))
		return slot;
	slot.state = SLOT_VALID;
	slot.sequence = sequence;
	slot.len = len;
	return slot;
}

/* Reads slot i into s->buf. What the file lacks at its end counts as damaged, not as an error. */
static int load_slot(struct varve_slots *s, unsigned i, struct slot *ret)
{
	int r = varve_pread_full(s->fd, s->buf, s->stride, (uint64_t)i * s->stride);

	if (r == -EBADMSG) {
		*ret = (struct slot){.state = SLOT_DAMAGED};
		return 0;
	}
	if (r < 0)
		return r;
	*ret = check_slot(s);
	return 0;
}

/* Which slot holds the record, its bytes in s->buf: its number, -ENOENT or -EBADMSG. */
static int load_newest(struct varve_slots *s, struct slot *ret)
{
	struct slot slot[2];
	unsigned newest;
	int r;

	for (unsigned i = 0; i < 2; i++) {
		r = load_slot(s, i, &slot[i]);
		if (r < 0)
			return r;
	}
	if (slot[0].state != SLOT_VALID && slot[1].state != SLOT_VALID)
		/* The first write fills both slots: an empty one tells that it never got through.
		 */
		return slot[0].state == SLOT_EMPTY || slot[1].state == SLOT_EMPTY ? -ENOENT
										  : -EBADMSG;
	newest = slot[1].state == SLOT_VALID &&
		 (slot[0].state != SLOT_VALID || slot[1].sequence > slot[0].sequence);
	r = load_slot(s, newest, ret);
	if (r < 0)
		return r;
	/* Only a file that changes beneath us can have become something else between the two reads.
	 */
	return ret->state == SLOT_VALID ? (int)newest : -EBADMSG;
}

static size_t fill_slot(struct varve_slots *s, uint64_t sequence, const void *data, size_t len)
{
	memcpy(s->buf, s->magic, VARVE_SLOTS_MAGIC_BYTES);
	varve_put_le64(s->buf + VARVE_SLOTS_MAGIC_BYTES, sequence);
	varve_put_le64(s->buf + VARVE_SLOTS_MAGIC_BYTES + 8, len);
	if (len)
		memmove(s->buf + HEADER_BYTES, data, len);
	varve_put_le64(s->buf + HEADER_BYTES + len, varve_hash64(s->buf, HEADER_BYTES + len));
	return len + OVERHEAD_BYTES;
}

static int write_slot(struct varve_slots *s, const void *data, size_t len)
{
	size_t n = fill_slot(s, s->sequence + 1, data, len);
	int r = varve_pwrite_full(s->fd, s->buf, n, (uint64_t)s->next * s->stride);

	if (r < 0)
		return r;
	if (fdatasync(s->fd) < 0)
		return -errno;
	s->sequence++;
	s->next = !s->next;
	return 0;
}

int varve_slots_read(struct varve_slots *s, void *buf, size_t *len)
{
	struct slot slot;
	int r = load_newest(s, &slot);

	if (r < 0)
		return r;
	if (slot.len > *len)
		return -ERANGE;
	if (slot.len)
		memcpy(buf, s->buf + HEADER_BYTES, slot.len);
	*len = slot.len;
	return 0;
}

int varve_slots_write(struct varve_slots *s, const void *data, size_t len)
{
	bool first = s->sequence == 0;
	int r;

	if (len > varve_slots_payload_max(s))
		return -EFBIG;
	r = write_slot(s, data, len);
	if (r == 0 && first)
		r = write_slot(s, data, len);
	return r;
}

size_t varve_slots_payload_max(const struct varve_slots *s)
{
	return s->stride - OVERHEAD_BYTES;
}

void varve_slots_close(struct varve_slots *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		(void)close(s->fd);
	free(s->buf);
	free(s);
}

static struct varve_slots *slots_new(const char *magic, size_t stride)
{
	struct varve_slots *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->fd = -1;
	memcpy(s->magic, magic, VARVE_SLOTS_MAGIC_BYTES);
	s->stride = stride;
	s->buf = malloc(stride);
	if (!s->buf) {
		varve_slots_close(s);
		return NULL;
	}
	return s;
}

/* Makes a whole new file of two slots that holds the record of `from` (NULL or none: nothing) in
 * both, and puts it in the place of dirfd/name. */
static int publish(int dirfd, const char *name, struct varve_slots *s, struct varve_slots *from)
{
	cleanup_free unsigned char *image = calloc(2, s->stride);
	struct slot slot;
	int r = from ? load_newest(from, &slot) : -ENOENT;

	if (!image)
		return -ENOMEM;
	if (r < 0 && r != -ENOENT && r != -EBADMSG)
		return r;
	for (unsigned i = 0; i < 2 && r != -ENOENT; i++) {
		size_t n = VARVE_SLOTS_MAGIC_BYTES;

		if (r >= 0)
			n = fill_slot(s, slot.sequence + i, from->buf + HEADER_BYTES, slot.len);
		else
			/* Damaged before, damaged after: not "never written". */
			memcpy(s->buf, s->magic, n);
		memcpy(image + i * s->stride, s->buf, n);
	}
	return varve_publish_file(dirfd, name, image, 2 * s->stride, 0600);
}

static int open_file(int dirfd, const char *name, int mode, size_t *ret_size)
{
	cleanup_close int fd = varve_openat(dirfd, name, mode | O_NONBLOCK, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > 2 * stride_for(VARVE_SLOTS_PAYLOAD_MAX))
		return -EBADMSG;
	*ret_size = (size_t)st.st_size;
	return steal_fd(&fd);
}

/* The slots of the file as it is there: a file of the right size tells its slots' size, one that
 * was cut short has them where we would have put them. */
static int open_there(int dirfd, const char *name, int mode, const char *magic, size_t want,
		      struct varve_slots **ret)
{
	size_t size = 0;
	int fd = open_file(dirfd, name, mode, &size);
	bool whole = size && size % (2 * (size_t)SLOT_ALIGN) == 0;
	struct varve_slots *s;

	if (fd < 0)
		return fd;
	s = slots_new(magic, whole ? size / 2 : want);
	if (!s) {
		(void)close(fd);
		return -ENOMEM;
	}
	s->fd = fd;
	*ret = s;
	return 0;
}

static int replace(int dirfd, const char *name, const char *magic, size_t stride,
		   struct varve_slots **sp)
{
	struct varve_slots *larger = slots_new(magic, stride);
	size_t size;
	int r;

	if (!larger)
		return -ENOMEM;
	r = publish(dirfd, name, larger, *sp);
	if (r == 0)
		r = larger->fd = open_file(dirfd, name, O_RDWR, &size);
	if (r < 0) {
		varve_slots_close(larger);
		return r;
	}
	varve_slots_close(*sp);
	*sp = larger;
	return 0;
}

static int open_slots(int dirfd, const char *name, const char *magic, size_t payload_max,
		      struct varve_slots **sp)
{
	size_t want = stride_for(payload_max);
	struct slot slot;
	int r = open_there(dirfd, name, O_RDWR, magic, want, sp);

	if (r < 0 && r != -ENOENT)
		return r;
	if (r == -ENOENT || (*sp)->stride < want) {
		r = replace(dirfd, name, magic, want, sp);
		if (r < 0)
			return r;
	}
	r = load_newest(*sp, &slot);
	if (r < 0)
		/* Reading says so again to whoever asks; a write begins anew. */
		return r == -ENOENT || r == -EBADMSG ? 0 : r;
	(*sp)->sequence = slot.sequence;
	(*sp)->next = !r;
	return 0;
}

int varve_slots_open(int dirfd, const char *name, const char *magic, size_t payload_max,
		     struct varve_slots **ret, struct varve_err *err)
{
	struct varve_slots *s = NULL;
	int r;

	if (strlen(magic) != VARVE_SLOTS_MAGIC_BYTES || payload_max > VARVE_SLOTS_PAYLOAD_MAX)
		return varve_err_set(err, -EINVAL, "%s: not a record's magic or size", name);
	r = open_slots(dirfd, name, magic, payload_max, &s);
	if (r < 0) {
		varve_slots_close(s);
		return varve_err_wrap(err, r, "open the record '%s'", name);
	}
	*ret = s;
	return 0;
}

/* How often a record that was just being replaced, in both slots one after the other, is looked at again. */
#define PEEK_TRIES 5

int varve_slots_peek(int dirfd, const char *name, const char *magic, void **ret, size_t *ret_len)
{
	struct varve_slots *s = NULL;
	struct slot slot;
	int r = strlen(magic) != VARVE_SLOTS_MAGIC_BYTES
			? -EINVAL
			: open_there(dirfd, name, O_RDONLY, magic, stride_for(1), &s);

	if (r < 0)
		return r;
	r = -EBADMSG;
	for (int i = 0; r == -EBADMSG && i < PEEK_TRIES; i++)
		r = load_newest(s, &slot);
	if (r >= 0) {
		*ret = malloc(slot.len + 1);
		r = *ret ? 0 : -ENOMEM;
	}
	if (r == 0) {
		memcpy(*ret, s->buf + HEADER_BYTES, slot.len);
		*ret_len = slot.len;
	}
	varve_slots_close(s);
	return r;
}
