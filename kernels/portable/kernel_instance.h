/* What an instance of a kernel is, as constants, on which branches cost nothing: the macros of docs/kernels.md are
 * defined for what it has alone. Included by sources of kernels, not by headers that declare arguments. */
#ifndef DEEPLOY_KERNEL_INSTANCE_H
#define DEEPLOY_KERNEL_INSTANCE_H

#include <stdint.h>

#ifdef EPILOGUE_BIAS
enum { HAS_BIAS = 1 };
#else
enum { HAS_BIAS = 0 };
#endif

#ifdef EPILOGUE_REQUANTISE
enum { HAS_REQUANTISATION = 1 };
#else
enum { HAS_REQUANTISATION = 0 };
#endif

#ifdef EPILOGUE_LOOKUP
enum { HAS_TABLE = 1 };
#else
enum { HAS_TABLE = 0 };
#endif

#ifdef EPILOGUE_CLAMP
enum { HAS_CLAMP = 1 };
#else
enum { HAS_CLAMP = 0 };
#endif

/* The parity of the zero point where ties of a requantisation go to the even multiple of the scale, or -1. */
#ifdef EPILOGUE_EVEN
enum { EVEN = EPILOGUE_EVEN };
#else
enum { EVEN = -1 };
#endif

/* Whether ACC_T is float. */
#ifdef ACC_IS_FLOAT
enum { IS_FLOAT = 1 };
#else
enum { IS_FLOAT = 0 };
#endif

/* Types of what may be absent; not by #ifndef, which says that users may define them. */
#if !defined(BIAS_T)
#define BIAS_T int32_t
#endif
#if !defined(MUL_T)
#define MUL_T int32_t
#endif
#if !defined(ADD_T)
#define ADD_T int32_t
#endif
#if !defined(TABLE_T)
#define TABLE_T Y_T
#endif

#endif
