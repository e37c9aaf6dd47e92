/* Runs MPI's collective operations for comparison, in a program that is built with MPI
 * (mpi_peer.c). */
#ifndef TSR_BENCH_CASES_COLLECTIVE_PEER_H
#define TSR_BENCH_CASES_COLLECTIVE_PEER_H

#include "bench/cases/collective_measure.h"

/* Returns true if this build has that program. Otherwise records its absence as the context's
 * error. */
bool collective_peer_exists(bench_context *context);

/* Measures as collective_measure does, but with MPI, in `ranks` processes that mpirun starts.
 * Writes the name and version of the MPI to `version`. */
bool collective_peer_run(bench_context *context, collective_kind kind, int ranks,
                         const collective_sizes *sizes, double seconds,
                         collective_result results[COLLECTIVE_MAX_SIZES], char *version,
                         size_t size);

#endif
