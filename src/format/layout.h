/*
 * The bytes of a segment: magics, offsets, sizes, limits. docs/format.md says the same in words;
 * change them together. All integers are little-endian; reserved fields are written as 0.
 *
 *	data frame 0 .. data frame F-1		ordinary zstd frames, together one tar stream
 *	index frame				zstd skippable frame: index header, zstd frame of the body
 *	seek table				zstd skippable frame of the published seekable format
 *
 * Body of the index, uncompressed: member records, heap, frame records, extent records.
 */
#pragma once

#include <stdint.h>

#define VARVE_TAR_BLOCK 512
#define VARVE_TAR_TRAILER 1024 /* two blocks of zeros end the tar stream */

/* Every skippable frame: u32 magic, u32 size of what follows. */
#define VARVE_SKIP_HEADER 8
#define VARVE_INDEX_FRAME_MAGIC UINT32_C(0x184D2A56)
#define VARVE_SEEK_FRAME_MAGIC UINT32_C(0x184D2A5E)

/* Index header. Magic, header size and "the hash is the last 8 bytes" hold for every version. */
#define VARVE_INDEX_MAGIC "varveidx"
#define VARVE_INDEX_VERSION 1
#define VARVE_INDEX_COMPAT_KNOWN UINT32_C(0)   /* unknown ones are read all the same */
#define VARVE_INDEX_INCOMPAT_KNOWN UINT32_C(0) /* unknown ones are refused */

enum {
	VARVE_IH_MAGIC = 0,
	VARVE_IH_HEADER_SIZE = 8,    /* u32 */
	VARVE_IH_VERSION = 12,	     /* u32 */
	VARVE_IH_COMPAT = 16,	     /* u32 */
	VARVE_IH_INCOMPAT = 20,	     /* u32 */
	VARVE_IH_BODY_SIZE = 24,     /* u64, uncompressed */
	VARVE_IH_BODY_COMP = 32,     /* u64, compressed */
	VARVE_IH_BODY_HASH = 40,     /* XXH3-128 of the uncompressed body, canonical */
	VARVE_IH_START_NS = 56,	     /* i64 */
	VARVE_IH_END_NS = 64,	     /* i64 */
	VARVE_IH_TAR_BYTES = 72,     /* u64 */
	VARVE_IH_DATA_BYTES = 80,    /* u64: all data frames; where the index frame begins */
	VARVE_IH_FILES = 88,	     /* u64: regular files */
	VARVE_IH_CONTENT_BYTES = 96, /* u64: sum of their sizes */
	VARVE_IH_MEMBERS = 104,	     /* u32 */
	VARVE_IH_FRAMES = 108,	     /* u32 */
	VARVE_IH_EXTENTS = 112,	     /* u32 */
	VARVE_IH_HEAP_SIZE = 116,    /* u32 */
	VARVE_IH_BUCKET_LEN = 120,   /* u16; names stand at the heap's start, each with a NUL */
	VARVE_IH_CLASS_LEN = 122,    /* u16 */
	VARVE_IH_TABLET_LEN = 124,   /* u16 */
	VARVE_IH_RESERVED = 126,     /* 10 bytes */
	VARVE_IH_HASH = 136,	     /* u64: XXH3-64 of the header up to here */
	VARVE_IH_SIZE = 144,
};
#define VARVE_IH_SIZE_MAX 4096 /* of a later version's header */

/* Member record. */
enum {
	VARVE_IM_HEAP = 0,	     /* u32: its path, then a link's target, then its xattrs */
	VARVE_IM_PATH_LEN = 4,	     /* u16 */
	VARVE_IM_RESERVED = 6,	     /* u16 */
	VARVE_IM_MODE = 8,	     /* u32 */
	VARVE_IM_UID = 12,	     /* u32 */
	VARVE_IM_GID = 16,	     /* u32 */
	VARVE_IM_MTIME_NSEC = 20,    /* u32 */
	VARVE_IM_MTIME_SEC = 24,     /* i64 */
	VARVE_IM_INO = 32,	     /* u64 */
	VARVE_IM_SIZE = 40,	     /* u64 */
	VARVE_IM_DATA = 48,	     /* u64: tar offset of its first byte of content */
	VARVE_IM_FIRST_EXTENT = 56,  /* u32 */
	VARVE_IM_EXTENTS = 60,	     /* u32 */
	VARVE_IM_XATTRS_LEN = 64,    /* u32 */
	VARVE_IM_SUBTREE_END = 68,   /* u32 */
	VARVE_IM_DIGEST = 72,	     /* 16 bytes */
	VARVE_IM_BYTES = 88,
};

/* Frame record. */
enum {
	VARVE_IF_COMP_SIZE = 0, /* u32 */
	VARVE_IF_RAW_SIZE = 4,	/* u32 */
	VARVE_IF_CHECK = 8,	/* u32: low half of XXH64, as in the zstd frame and the seek table */
	VARVE_IF_RESERVED = 12, /* u32 */
	VARVE_IF_HASH = 16,	/* u64: XXH3-64 of the raw bytes */
	VARVE_IF_BYTES = 24,
};

/* Extent record. */
enum {
	VARVE_IE_OFFSET = 0, /* u64 */
	VARVE_IE_LENGTH = 8, /* u64 */
	VARVE_IE_BYTES = 16,
};

/* Seek table: skippable header, entries (the index frame is the last, of decompressed size 0),
 * footer. */
#define VARVE_SEEK_ENTRY 12  /* u32 compressed size, u32 decompressed size, u32 checksum */
#define VARVE_SEEK_FOOTER 9  /* u32 entries, u8 descriptor, u32 magic */
#define VARVE_SEEK_DESCRIPTOR 0x80 /* the entries have checksums */
#define VARVE_SEEK_MAGIC UINT32_C(0x8F92EAB1)
#define VARVE_SEEK_CHECK_EMPTY UINT32_C(0x51D8E999) /* low half of XXH64 of nothing */

/* Limits, of what is written as of what is read. */
#define VARVE_INDEX_BYTES_MAX (UINT64_C(1) << 30) /* uncompressed body; about 6 million files */
#define VARVE_FRAMES_MAX (UINT32_C(1) << 24)	  /* 32 TiB of tar stream */
#define VARVE_NAME_BYTES_MAX 255		  /* of a bucket, class or tablet */
