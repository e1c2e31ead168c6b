/* What recovery needs of the boundary. Private to store/; see core.h for the rest. */
#pragma once

#include "store/core.h"

/* Every file of a that writers still hold gets a successor in the current bucket: an object goes on as a stream of
 * its path. mutate held (it may be let go of in between). */
void varve_boundary_settle(struct varve_store *s, struct varve_bucket *a);
