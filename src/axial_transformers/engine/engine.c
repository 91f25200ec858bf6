/* The engine: one source, compiled for each level of a processor's instructions (LEVEL: v2, v3, v3_vnni, v4, v4_vnni,
   aarch64, aarch64_dot).

   exact arithmetic, the same bits everywhere        free arithmetic, for training
     arithmetic.h   float32: exp, log, sums            attention.c   attention along lines, forward and backward
     products.h     sums of products of integers
     linear.h       linear layers
     layers.h       residual layers, an LSTM          pairs.h       the same by products of pairs of bfloat16
     coder.h        distributions, the entropy coder   relative.c    equation 4 of Axial-DeepLab
     rows.h         a position of a row to its value   pointwise.c   GELU and dropout
     sampling.h     a value by noise
     network.c      rows of positions and slabs

   On the left, the files named .h but sampling.h are part of the command axl too (tools/axl): C99, and no library but
   libc. The files named .c hold what Python calls, by ctypes, at one name for each level: EXPORTED(name) is name_LEVEL.
   Such a function returns 0 or a number of door.h. It changes no memory but what its arguments name, holds no state, and
   trusts its arguments: Python checks them. */

#include "door.h"

#include "network.c"
#include "attention.c"
#include "pointwise.c"
#include "relative.c"
