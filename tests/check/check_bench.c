#include "check.h"
int bench_run(const struct kern *k, const char *f) { (void)k; (void)f; return 0; }
