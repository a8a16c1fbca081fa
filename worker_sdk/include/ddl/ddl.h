// The worker SDK, all of it.
#ifndef DDL_DDL_H_
#define DDL_DDL_H_

#include "ddl/advice.h"         // IWYU pragma: export
#include "ddl/backend.h"        // IWYU pragma: export
#include "ddl/checkpoint.h"     // IWYU pragma: export
#include "ddl/context.h"        // IWYU pragma: export
#include "ddl/data_parallel.h"  // IWYU pragma: export
#include "ddl/evaluation.h"     // IWYU pragma: export
#include "ddl/lr_schedule.h"    // IWYU pragma: export
#include "ddl/nccl_id.h"        // IWYU pragma: export
#include "ddl/out_of_memory.h"  // IWYU pragma: export
#include "ddl/sampler.h"        // IWYU pragma: export
#include "ddl/seeds.h"          // IWYU pragma: export

#endif  // DDL_DDL_H_
