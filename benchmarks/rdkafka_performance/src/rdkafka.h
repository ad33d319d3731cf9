/* Inside librdkafka's sources its header has no folder. */
#include <librdkafka/rdkafka.h>
