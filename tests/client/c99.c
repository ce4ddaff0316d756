/* tutti.h is plain C: compiled as C99, pedantically, and called without a daemon. */
#include <stdio.h>
#include <string.h>

#include "client/tutti.h"

int main(void) {
  tutti_group* group = NULL;
  tutti_join_options options = tutti_join_defaults();
  options.socket = "/nonexistent/tutti.sock";
  options.job = "demo";
  options.rank = 0;
  options.world_size = 1;
  if (tutti_join(&options, &group) != TUTTI_UNAVAILABLE || group != NULL) return 1;
  const tutti_error* error = tutti_last_error();
  printf("%s: %s\n", tutti_code_name(error->code), error->message);
  if (strstr(error->message, "start one with: tuttid") == NULL) return 2;
  if (error->rank != -1 || strcmp(error->host, "") != 0) return 3;
  if (tutti_dtype_size(TUTTI_BF16) != 2 || tutti_dtype_size((tutti_dtype)99) != 0) return 4;
  return tutti_barrier(NULL, NULL, NULL) == TUTTI_INVALID_ARGUMENT ? 0 : 5;
}
