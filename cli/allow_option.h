// Whom `vudactl run --allow-user` and `--allow-group` name.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace vuda::cli {

// The value of VUDA_ALLOW_UIDS (VUDA_ALLOW_GIDS) for these users (groups), each a name or a number: digits are a
// number, anything else is looked up in the user (group) database. INVALID_ARGUMENT names the option and the word that
// is neither, or says that there are more than vudad takes (64).
Result<std::string> ids_of_users(const std::vector<std::string>& words);
Result<std::string> ids_of_groups(const std::vector<std::string>& words);

}  // namespace vuda::cli
