"""The HTML pages: thin routes that put the data of the first paint into a template."""

from app.pages import machine, methods, overview, routes, sweeps
from app.pages.assets import mount_static
from app.pages.rendering import error_page

router = routes.router
for part in (overview, methods, machine, sweeps):
    router.include_router(part.router)

__all__ = ["error_page", "mount_static", "router"]
