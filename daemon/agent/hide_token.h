// Keeps the token from those who list processes.
#pragma once

namespace tutti {

// Overwrites the token in this process's own arguments and environment, which `ps` shows and other
// processes of the user can read, and removes the variable. To be called once they are read, and
// before other threads exist.
void hide_token(int argc, char** argv);

}  // namespace tutti
