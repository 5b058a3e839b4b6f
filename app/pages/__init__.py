"""The HTML pages: thin routes that put the data of the first paint into a template."""

from app.pages import machine, methods, overview, routes
from app.pages.assets import mount_static
from app.pages.rendering import error_page

router = routes.router
router.include_router(overview.router)
router.include_router(methods.router)
router.include_router(machine.router)

__all__ = ["error_page", "mount_static", "router"]
