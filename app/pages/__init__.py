"""The HTML pages: thin routes that put the data of the first paint into a template."""

from app.pages.assets import mount_static
from app.pages.rendering import error_page
from app.pages.routes import router
from app.pages.sweeps import router as sweeps_router

router.include_router(sweeps_router)

__all__ = ["error_page", "mount_static", "router"]
