#include "segment_util.h"

static void round_trip(const struct spec *specs, size_t n, unsigned threads)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct memory m = {0};
	struct varve_err err = {0};
	int r;

	params.threads = threads;
	r = encode(specs, n, &params, &m, &totals, &err);
	ck_assert_msg(r == 0, "encode: %d %s", r, err.msg);
	ck_assert_uint_eq(totals.segment_bytes, m.buf.len);
	compare_segment(&m.buf, specs, n);
	varve_buf_done(&m.buf);
}

START_TEST(all_sizes)
{
	static const uint64_t sizes[] = {0, 1, 511, 512, 513, 1023, 1 << 20,
					 VARVE_FRAME_BYTES - 1, VARVE_FRAME_BYTES,
					 VARVE_FRAME_BYTES + 1, 3 * VARVE_FRAME_BYTES,
					 /* with three headers (its own and the root's) and the two blocks behind */
					 VARVE_FRAME_BYTES - 512 - 512 - 1024,
					 VARVE_FRAME_BYTES - 512 - 512 - 1024 + 1,
					 VARVE_FRAME_BYTES - 512 - 512 - 1024 - 511};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct spec s = {.path = "f", .mode = FILE_MODE, .size = sizes[i], .seed = 7};

		round_trip(&s, 1, 1);
		round_trip(&s, 1, 3);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("segment_dec");
	TCase *tc = tcase_create("round trip");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, all_sizes);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed > 0;
}
