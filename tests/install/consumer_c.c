#include <tutti.h>

int main(void) {
  tutti_group* group = NULL;
  return tutti_join(NULL, &group) == TUTTI_INVALID_ARGUMENT && group == NULL ? 0 : 1;
}
