@echo off
rem Starts scripts/start-ui.sh in the Windows Subsystem for Linux, in this folder, with the same arguments.
where wsl >nul 2>nul
if errorlevel 1 (
  echo WSL is missing. Install it with: wsl --install
  exit /b 3
)
wsl --cd "%~dp0.." bash scripts/start-ui.sh %*
exit /b %ERRORLEVEL%
